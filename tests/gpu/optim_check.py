# SPDX-License-Identifier: Apache-2.0
"""The fused optimizers on a GPU: the bits of the library's own step on the CPU, torch in fp64 over
many steps, steps in a CUDA graph, PyTorch's GradScaler, other streams, shards, PyTorch's own
optimizers. Prints a line for each check; ends with 1 if one failed, and goes on after it.
"""

from __future__ import annotations

import copy
import gc
import sys
from typing import Any

import torch
from checks import Check, run
from paceline import optim
from paceline.optim import _report

GPU = torch.device("cuda")
STEPS = 120
Tensors = list[torch.Tensor]

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.1, "lr": 1e-2}),
    ("AdamW", {"maximize": True, "betas": (0.5, 0.9)}),
    ("Adam", {"weight_decay": 0.1, "eps": 1e-6}),
    ("SGD", {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("LAMB", {}),
    ("LARS", {"lr": 0.1, "weight_decay": 1e-3, "nesterov": True}),
]

checks: list[Check] = []


def check(function: Check) -> Check:
    checks.append(function)
    return function


def shapes() -> Tensors:
    """Around every boundary there is, empty and scalar ones, several layouts."""
    torch.manual_seed(3)
    sizes = [1, 3, 511, 513, 8191, 8192, 8193, 40_001, 1 << 21]
    made = [torch.randn(size) for size in sizes]
    made += [torch.randn(0, 5), torch.randn(()), torch.randn(61, 37)]
    made += [torch.randn(13, 17).t(), torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)]
    return made


def leaves(
    device: torch.device | str, dtype: torch.dtype = torch.float32, shifted: bool = False
) -> Tensors:
    made = []
    for value in shapes():
        value = value.to(device=device, dtype=dtype)
        if shifted and value.dim() == 1:  # where no four elements can be read at once
            whole = torch.empty(value.numel() + 1, device=device, dtype=dtype)
            whole[1:].copy_(value)
            value = whole[1:]
        made.append(value.detach().requires_grad_())
    return made


def give(params: Tensors, seed: int, scale: float = 1.0) -> None:
    """The same gradients on any device."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in params:
        grad = torch.randn(parameter.shape, generator=generator) * scale
        parameter.grad = grad.to(device=parameter.device, dtype=parameter.dtype)


def same(ours: Any, theirs: Any) -> None:
    for group, other in zip(ours.param_groups, theirs.param_groups, strict=True):
        for index, (p, q) in enumerate(zip(group["params"], other["params"], strict=True)):
            assert torch.equal(p.cpu(), q), (
                f"parameter {index} of {tuple(p.shape)}: {(p.cpu() - q).abs().max()}"
            )
            for key, value in ours.state.get(p, {}).items():
                held = theirs.state[q][key]
                assert value is held or torch.equal(value.cpu(), held), (
                    f"{key} of parameter {index}"
                )


def on_the_gpu(optimizer: Any) -> None:
    outcome = _report.outcome_of(optimizer)
    assert outcome.where == "the GPU", (
        f"it was not the library's: {outcome.elsewhere} {outcome.device}"
    )


@check
def the_bits_are_the_processors() -> None:
    for name, options in VARIANTS:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for clip, shifted in ((None, False), (0.5, False), (None, True)):
                ours, theirs = leaves(GPU, dtype, shifted), leaves("cpu", dtype)
                one = getattr(optim, name)(ours, **options, max_grad_norm=clip)
                other = getattr(optim, name)(theirs, **options, max_grad_norm=clip)
                for number in range(4):
                    give(ours, number)
                    give(theirs, number)
                    one.step()
                    other.step()
                on_the_gpu(one)
                same(one, other)
                assert clip is None or float(one.grad_norm) == other.grad_norm


@check
def many_steps_follow_fp64() -> None:
    for name, options in VARIANTS:
        kind = getattr(torch.optim, name, None) or getattr(optim, name)
        ours, theirs, exact = (
            leaves(GPU),
            leaves(GPU),
            [p.double().detach().requires_grad_() for p in leaves(GPU)],
        )
        one, other = getattr(optim, name)(ours, **options), kind(exact, **options)
        torchs = kind(theirs, **options) if hasattr(torch.optim, name) else None
        for number in range(STEPS):
            give(ours, number)
            for p, q, r in zip(ours, theirs, exact, strict=True):
                q.grad, r.grad = p.grad.clone(), p.grad.double()
            one.step()
            other.step()
            if torchs:
                torchs.step()
        on_the_gpu(one)

        def distance(params: Tensors, exact: Tensors = exact) -> float:
            return max(
                float((p.detach().double() - q.detach()).abs().max())
                for p, q in zip(params, exact, strict=True)
                if p.numel()
            )

        allowed = 1.5 * distance(theirs) + 1e-6 if torchs else 1e-5
        assert distance(ours) <= allowed, (
            f"{name} {options}: {distance(ours)} from fp64, allowed {allowed}"
        )


@check
def a_captured_step_is_a_step() -> None:
    for name, options in VARIANTS:
        if name in ("LAMB", "LARS"):
            options = {**options, "lr": 0.1}
        captured, eager = leaves(GPU), leaves(GPU)
        tensor_lr = name in ("Adam", "AdamW") and "lr" not in options
        rate = torch.tensor(1e-3, device=GPU) if tensor_lr else None
        one = getattr(optim, name)(
            captured, **{**options, **({"lr": rate, "capturable": True} if tensor_lr else {})}
        )
        # The same number: 1e-3 is not one of float32.
        other = getattr(optim, name)(
            eager, **{**options, **({} if rate is None else {"lr": float(rate)})}
        )
        give(captured, 0)
        give(eager, 0)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            one.step()
        torch.cuda.current_stream().wait_stream(stream)
        other.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one.step()
        for number in range(1, 8):
            grads = [p.grad for p in captured]
            give(eager, number)
            for grad, new in zip(grads, eager, strict=True):
                grad.copy_(new.grad)
            if rate is not None:
                rate.mul_(0.5)
                other.param_groups[0]["lr"] = float(rate)
            graph.replay()
            other.step()
        on_the_gpu(one)
        for p, q in zip(captured, eager, strict=True):
            assert torch.equal(p, q), f"{name}: {(p - q).abs().max()}"


@check
def a_scalers_skipped_step_advances_nothing() -> None:
    ours, theirs = leaves(GPU), leaves(GPU)
    one, other = optim.AdamW(ours, max_grad_norm=1.0), torch.optim.AdamW(theirs)
    scalers = [torch.amp.GradScaler("cuda", init_scale=1024.0) for _ in range(2)]
    for number in range(5):
        for params, optimizer, scaler in ((ours, one, scalers[0]), (theirs, other, scalers[1])):
            scaler.scale(torch.ones((), device=GPU))
            give(params, number, float(scaler.get_scale()))
            if number == 2:
                params[3].grad[5] = float("inf")
            if optimizer is other:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(params, 1.0)
            scaler.step(optimizer)
            scaler.update()
    on_the_gpu(one)
    assert scalers[0].get_scale() == scalers[1].get_scale() == 512.0
    assert all(float(one.state[p]["step"]) == 4 for p in ours)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6)


@check
def another_stream_and_thread_serve_as_well() -> None:
    import threading

    ours, theirs = leaves(GPU), leaves("cpu")
    one, other = optim.AdamW(ours, max_grad_norm=1.0), optim.AdamW(theirs, max_grad_norm=1.0)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for number, stream in enumerate(streams):
        give(theirs, number)
        other.step()

        def work(number: int = number, stream: torch.cuda.Stream = stream) -> None:
            with torch.cuda.stream(stream):
                give(ours, number)
                one.step()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        stream.synchronize()
    same(one, other)


@check
def a_checkpoint_goes_to_torch_and_back() -> None:
    ours, theirs = leaves(GPU), leaves(GPU)
    one = optim.AdamW(ours)
    give(ours, 0)
    one.step()
    torchs = torch.optim.AdamW(theirs)
    torchs.load_state_dict(copy.deepcopy(one.state_dict()))  # or they would share tensors
    back = optim.AdamW(theirs)
    with torch.no_grad():
        for p, q in zip(ours, theirs, strict=True):
            q.copy_(p)
    for number, optimizer in ((1, torchs), (2, back)):
        if optimizer is back:
            back.load_state_dict(copy.deepcopy(torchs.state_dict()))
        give(ours, number)
        give(theirs, number)
        one.step()
        optimizer.step()
    on_the_gpu(back)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6)


def offloaded(dtype: torch.dtype) -> None:
    ours, theirs = leaves(GPU, dtype), leaves("cpu", dtype)
    gc.collect()
    before = torch.cuda.memory_allocated()
    one = optim.Offload(optim.AdamW, ours, lr=1e-2, max_grad_norm=1.0)
    other = optim.AdamW(theirs, lr=1e-2, max_grad_norm=1.0)
    for number in range(5):
        give(ours, number)
        give(theirs, number)
        one.step()
        other.step()
        for p in ours:
            p.grad = None
        for p, q in zip(ours, theirs, strict=True):
            assert torch.equal(p.cpu(), q), (dtype, number)
    assert torch.cuda.memory_allocated() == before, "the GPU holds parameters alone"


@check
def state_in_the_hosts_memory_is_the_processors() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        offloaded(dtype)  # whose tensors are gone before the next one counts


@check
def a_sharded_step_is_the_whole_ones() -> None:
    """FSDP2's shards in a group of one rank: what a second rank adds is tested without a GPU."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cuda", (1,))
        for limit in (None, 0.5):
            torch.manual_seed(1)
            sharded = torch.nn.Sequential(
                torch.nn.Linear(64, 129), torch.nn.Tanh(), torch.nn.Linear(129, 1)
            )
            whole = copy.deepcopy(sharded)
            fully_shard(sharded.to(GPU), mesh=mesh)
            ours = optim.AdamW(sharded.parameters(), max_grad_norm=limit)
            theirs = optim.AdamW(whole.parameters(), max_grad_norm=limit)
            for number in range(4):
                sharded.zero_grad()
                torch.manual_seed(number)
                sharded(torch.randn(8, 64).to(GPU)).square().mean().backward()
                for p, q in zip(sharded.parameters(), whole.parameters(), strict=True):
                    q.grad = p.grad.full_tensor().cpu()
                ours.step()
                theirs.step()
            on_the_gpu(ours)
            for p, q in zip(sharded.parameters(), whole.parameters(), strict=True):
                here = p.full_tensor().cpu()
                # With a limit the gradients are divided by one number of float32, where the
                # processor multiplies by one of float64.
                assert (
                    torch.equal(here, q)
                    if limit is None
                    else torch.allclose(here, q, rtol=1e-5, atol=1e-7)
                )
    finally:
        dist.destroy_process_group()


@check
def pytorchs_own_optimizers_updated_in_place_have_the_processors_bits() -> None:
    from paceline.optim import _patch

    for name, options in VARIANTS:
        if not hasattr(torch.optim, name):
            continue
        ours, theirs = leaves(GPU), leaves("cpu")
        pair = [getattr(torch.optim, name)(params, **options) for params in (ours, theirs)]
        for optimizer in pair:
            assert not _patch.accelerate(optimizer)
        one, other = pair
        for number in range(4):
            for params, optimizer in ((ours, one), (theirs, other)):
                give(params, number)
                optimizer.step()
        on_the_gpu(one)
        same(one, other)
        assert all(
            state["step"].device.type == "cpu" for state in one.state.values() if "step" in state
        )


if __name__ == "__main__":
    sys.exit(run(checks))
