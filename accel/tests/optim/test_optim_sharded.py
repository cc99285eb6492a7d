# SPDX-License-Identifier: Apache-2.0
"""paceline.optim over parameters of which each rank has a part (FSDP2): the same optimizer over
whole parameters given the same gradients, torch's own beside it, and checkpoints both ways. Shards
are uneven, and one rank has none of some.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from programs import Train

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6),
    reason="a PyTorch without fully_shard",
)

SHARDED = """
        import copy
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import DTensor
        from paceline import optim
        from paceline.optim import _report
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2,))
        def whole_model(dtype=torch.float32):
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 1)).to(dtype)
        def sharded_model(dtype=torch.float32):
            model = whole_model(dtype)
            for part in (model[0], model[2], model):
                fully_shard(part, mesh=mesh)
            return model
        def backward(model, number):
            generator = torch.Generator().manual_seed(2 * number + dist.get_rank())
            inputs = torch.randn(6, 4, generator=generator).to(next(model.parameters()).dtype)
            model.zero_grad()
            (model(inputs).square().mean() * 9).backward()
        def close(one, other):
            for p, q in zip(one.parameters(), other.parameters()):
                p, q = (t.full_tensor() if isinstance(t, DTensor) else t for t in (p, q))
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
"""


def test_a_shards_step_is_the_whole_ones(train_by_fork: Train) -> None:
    run = train_by_fork(
        SHARDED
        + """
        momentum = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
        for kind, options, dtype, limit in (
            (optim.AdamW, {"amsgrad": True}, torch.float32, None),
            (optim.AdamW, {}, torch.bfloat16, None),
            (optim.Adam, {"weight_decay": 0.1}, torch.float32, 0.5),
            (optim.SGD, momentum, torch.float32, None),
            (optim.SGD, {"lr": 0.1}, torch.bfloat16, 0.5),
            (optim.LARS, {"lr": 0.1}, torch.float32, 0.5),
        ):
            layers = kind is optim.LARS
            sharded, whole = sharded_model(dtype), whole_model(dtype)
            ours = kind(sharded.parameters(), max_grad_norm=limit, **options)
            theirs = kind(whole.parameters(), max_grad_norm=limit, **options)
            for number in range(3):
                backward(sharded, number)
                for p, q in zip(sharded.parameters(), whole.parameters()):
                    q.grad = p.grad.full_tensor()
                ours.step()
                theirs.step()
                assert limit is None or abs(ours.grad_norm - theirs.grad_norm) < 1e-5 * theirs.grad_norm
            outcome = _report.outcome_of(ours)
            assert (outcome.fused, list(outcome.elsewhere)) == (
                (0, ["shards of tensors, whose norms are of all ranks"]) if layers else (4, [])), vars(outcome)
            for p, q in zip(sharded.parameters(), whole.parameters()):
                same = p.full_tensor()
                if layers or limit:
                    torch.testing.assert_close(same, q, rtol=1e-5 if dtype is torch.float32 else 1e-2, atol=1e-6)
                else:
                    assert torch.equal(same, q), (kind, dtype)
                for key, value in ours.state[p].items():
                    held = theirs.state[q][key]
                    if isinstance(held, torch.Tensor) and held.dim():
                        assert type(value) is DTensor and value.placements == p.placements, key
                        assert limit or layers or torch.equal(value.full_tensor(), held), key
        print("equal")
        dist.destroy_process_group()
        """,
        ranks=2,
        OMP_NUM_THREADS="1",
    )
    assert run.code == 0 and run.output.count("equal") == 2, run.output


def test_the_norm_of_parameters_that_fsdp_and_tensor_parallelism_shard(
    train_by_fork: Train,
) -> None:
    run = train_by_fork(
        SHARDED
        + """
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        def even_model():
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        model, whole = even_model(), even_model()
        parallelize_module(model, mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"])
        assert "_StridedShard" in {type(one).__name__ for one in model[0].weight.placements}, model[0].weight.placements
        ours, theirs = (optim.AdamW(one.parameters(), max_grad_norm=0.5) for one in (model, whole))
        generator = torch.Generator().manual_seed(1)
        for number in range(3):
            inputs = torch.randn(6, 4, generator=generator)
            for one in (model, whole):
                one.zero_grad()
                (one(inputs).square().mean() * 9).backward()
            ours.step()
            theirs.step()
            assert abs(ours.grad_norm - theirs.grad_norm) < 1e-5 * theirs.grad_norm, (ours.grad_norm, theirs.grad_norm)
            close(model, whole)
        print("equal")
        dist.destroy_process_group()
        """,
        ranks=4,
        OMP_NUM_THREADS="1",
    )
    assert run.code == 0 and run.output.count("equal") == 4, run.output


DEVICE = """
        import ctypes
        fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
        from paceline.optim import _device
        from paceline.amp import LossScaler
        _device.stream_of, _device.is_capturing = (lambda device: 77), (lambda: False)
        def step(optimizer, on_gpu):
            _device.KIND = "cpu" if on_gpu else "cuda"
            optimizer.step()
        def compare(sharded, whole, ours, theirs, exact):
            for p, q in zip(sharded.parameters(), whole.parameters()):
                here = p.full_tensor()
                if exact:
                    assert torch.equal(here, q), (here - q).abs().max()
                else:
                    torch.testing.assert_close(here, q, rtol=1e-5 if p.dtype is torch.float32 else 1e-2, atol=1e-6)
                for key, value in ours.state[p].items():
                    held = theirs.state[q][key]
                    if isinstance(held, torch.Tensor) and held.dim():
                        assert type(value) is DTensor and value.placements == p.placements, key
                        assert not exact or torch.equal(value.full_tensor(), held), key
"""


@pytest.fixture
def train_on_fake(train_by_fork: Train, fake_device: dict[str, str]) -> Train:
    def train(program: str, begin: str = "", **options: str) -> Any:
        return train_by_fork(
            begin + DEVICE + SHARDED + program,
            ranks=2,
            OMP_NUM_THREADS="1",
            **fake_device,
            **options,
        )

    return train


def test_a_shards_step_on_a_gpu_is_the_whole_one_on_the_cpu(train_on_fake: Train) -> None:
    run = train_on_fake("""
        momentum = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
        for kind, options, dtype, limit in (
            (optim.AdamW, {"amsgrad": True}, torch.float32, None),
            (optim.AdamW, {}, torch.bfloat16, None),
            (optim.Adam, {"weight_decay": 0.1}, torch.float32, 0.5),
            (optim.SGD, momentum, torch.float32, None),
            (optim.SGD, {"lr": 0.1}, torch.bfloat16, 0.5),
        ):
            sharded, whole = sharded_model(dtype), whole_model(dtype)
            ours = kind(sharded.parameters(), max_grad_norm=limit, **options)
            theirs = kind(whole.parameters(), max_grad_norm=limit, **options)
            for number in range(4):
                backward(sharded, number)
                for p, q in zip(sharded.parameters(), whole.parameters()):
                    q.grad = p.grad.full_tensor()
                if number == 2:  # elsewhere, as where a program has put its shards away and taken them back
                    for state in ours.state.values():
                        for value in state.values():
                            (value._local_tensor if type(value) is DTensor else value).data = (
                                value._local_tensor if type(value) is DTensor else value).data.clone()
                plan = ours._plan
                step(ours, True)
                assert (ours._plan is plan) == (number in (1, 3)), (kind, number)
                step(theirs, False)
                assert limit is None or abs(float(ours.grad_norm) - theirs.grad_norm) < 1e-5 * theirs.grad_norm
            outcome = _report.outcome_of(ours)
            assert (outcome.fused, outcome.where, outcome.elsewhere) == (4, "the GPU", {}), vars(outcome)
            compare(sharded, whole, ours, theirs, limit is None)
        print("equal")
        dist.destroy_process_group()
    """)
    assert run.code == 0 and run.output.count("equal") == 2, run.output


def test_all_ranks_skip_where_one_has_a_gradient_that_is_not_finite(train_on_fake: Train) -> None:
    run = train_on_fake("""
        sharded, whole = sharded_model(), whole_model()
        ours, theirs = optim.AdamW(sharded.parameters(), max_grad_norm=0.5), optim.AdamW(whole.parameters(), max_grad_norm=0.5)
        scaler = LossScaler(init_scale=8.0, growth_interval=100)
        for number in range(4):
            backward(sharded, number)
            for p, q in zip(sharded.parameters(), whole.parameters()):
                q.grad = p.grad.full_tensor()
                p.grad.to_local().mul_(scaler.get_scale())
            if number == 1 and dist.get_rank() == 1:
                next(sharded.parameters()).grad.to_local()[0] = float("inf")
            before = [p.full_tensor().clone() for p in sharded.parameters()]
            _device.KIND = "cpu"
            scaler.scale(torch.ones(()))
            scaler.step(ours)
            scaler.update()
            same = [torch.equal(p.full_tensor(), q) for p, q in zip(sharded.parameters(), before)]
            assert all(same) if number == 1 else not any(same), (number, same)
            if number != 1:
                step(theirs, False)
        assert scaler.get_scale() == 4.0 and float(ours.state[next(sharded.parameters())]["step"]) == 3
        compare(sharded, whole, ours, theirs, False)
        print("equal")
        dist.destroy_process_group()
    """)
    assert run.code == 0 and run.output.count("equal") == 2, run.output


def test_torchs_own_optimizers_of_shards_where_the_job_asks(train_on_fake: Train) -> None:
    run = train_on_fake(
        """
        assert torch.optim.AdamW.__module__ == "torch.optim.adamw"
        for on_gpu in (False, True):
            for kind, options in ((torch.optim.AdamW, {"amsgrad": True}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})):
                sharded, whole = sharded_model(), whole_model()
                ours, theirs = kind(sharded.parameters(), **options), kind(whole.parameters(), **options)
                for number in range(4):
                    backward(sharded, number)
                    for p, q in zip(sharded.parameters(), whole.parameters()):
                        q.grad = p.grad.full_tensor()
                    step(ours, on_gpu)
                    step(theirs, False)
                outcome = _report.outcome_of(ours)
                expected = (4, "the GPU" if on_gpu else "the CPU", {})
                assert (outcome.fused, outcome.where, outcome.elsewhere) == expected, vars(outcome)
                compare(sharded, whole, ours, theirs, True)
                state = ours.state[next(sharded.parameters())]
                assert "step" not in state or (float(state["step"]) == 4 and type(state["step"]) is torch.Tensor)
        print("equal")
        dist.destroy_process_group()
    """,
        begin="        torch.cuda.is_initialized = lambda: True\n",
        PACELINE_OPTIMIZER="Auto",
    )
    assert run.code == 0 and run.output.count("equal") == 2, run.output


def test_a_mesh_that_made_the_process_group_is_enough(train_by_fork: Train) -> None:
    """init_device_mesh has its own name for init_process_group, from before any patch."""
    run = train_by_fork(
        SHARDED.replace('dist.init_process_group("gloo")', "")
        + """
        for dtype in (torch.float32, torch.bfloat16):
            for options in ({}, {"foreach": True}):
                model = sharded_model(dtype)
                optimizer = torch.optim.AdamW(model.parameters(), **options)
                for number in range(2):
                    backward(model, number)
                    optimizer.step()
                outcome = _report.outcome_of(optimizer)
                assert outcome.fused == 4 and not outcome.elsewhere, vars(outcome)
                for p in model.parameters():
                    assert optimizer.state[p]["exp_avg_sq"].dtype is dtype
        print("reached the end")
        dist.destroy_process_group()
        """,
        ranks=2,
        OMP_NUM_THREADS="1",
        PACELINE_OPTIMIZER="Auto",
    )
    assert run.code == 0 and run.output.count("reached the end") == 2, run.output


def test_beside_torchs_with_checkpoints_both_ways(train_by_fork: Train) -> None:
    run = train_by_fork(
        SHARDED
        + """
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
        def fit(model, optimizer, numbers, limit=None):
            for number in numbers:
                backward(model, number)
                if limit:
                    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit).full_tensor()
                optimizer.step()
            return norm if limit else optimizer.grad_norm
        one, other = sharded_model(), sharded_model()
        ours, theirs = optim.AdamW(one.parameters(), max_grad_norm=0.5), torch.optim.AdamW(other.parameters())
        norms = fit(one, ours, range(5)), fit(other, theirs, range(5), 0.5)
        assert abs(norms[0] - float(norms[1])) < 1e-5
        close(one, other)
        # From each to the other: as they are, and by name, as checkpoints are written.
        back, torchs = optim.AdamW(other.parameters(), max_grad_norm=0.5), torch.optim.AdamW(one.parameters())
        back.load_state_dict(copy.deepcopy(theirs.state_dict()))
        set_optimizer_state_dict(one, torchs, get_optimizer_state_dict(one, ours))
        fit(one, torchs, range(5, 9), 0.5)
        fit(other, back, range(5, 9))
        close(one, other)
        saved = get_optimizer_state_dict(other, back, options=StateDictOptions(full_state_dict=True))
        assert set(saved["state"]["0.weight"]) == {"step", "exp_avg", "exp_avg_sq"}
        assert saved["state"]["0.weight"]["exp_avg"].shape == (7, 4)
        # 16-bit ones, with masters, into an optimizer of ours.
        half, again = sharded_model(torch.bfloat16), sharded_model(torch.bfloat16)
        first = optim.AdamW(half.parameters(), lr=1e-3)
        fit(half, first, range(3))
        second = optim.AdamW(again.parameters(), lr=1e-3)
        for p, q in zip(half.parameters(), again.parameters()):
            q.data.copy_(p.data)
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        fit(half, first, range(3, 6))
        fit(again, second, range(3, 6))
        for p, q in zip(half.parameters(), again.parameters()):
            assert torch.equal(p.full_tensor(), q.full_tensor())
            assert first.state[p]["master_param"].dtype is torch.float32
        print("equal")
        dist.destroy_process_group()
        """,
        ranks=2,
        OMP_NUM_THREADS="1",
    )
    assert run.code == 0 and run.output.count("equal") == 2, run.output


def test_torchs_own_optimizers_keep_a_table_of_shards(train_by_fork: Train) -> None:
    """Memory that is exchanged below a DTensor, and a gradient that is placed otherwise, are
    noticed.
    """
    run = train_by_fork(
        SHARDED
        + """
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from paceline.optim import _patch_host
        made = []
        class Counted(_patch_host.HostTable):
            def __init__(self, add_group):
                super().__init__(add_group)
                made.append(1)
        _patch_host.HostTable = Counted
        def exchange(tensor):
            # Of a leaf that is no nn.Parameter this is the very tensor that the DTensor holds.
            with torch.no_grad():
                part = tensor.to_local()
                part.set_(part.clone())
        torch.manual_seed(1)
        values = [torch.randn(7, 4), torch.randn(6)]
        plain = [value.clone().requires_grad_() for value in values]
        leaves = [distribute_tensor(value, mesh, [Shard(0)]).detach().requires_grad_() for value in values]
        ours, theirs = torch.optim.AdamW(leaves, lr=0.1), torch.optim.AdamW(plain, lr=0.1)
        theirs._paceline_optimizer = False
        changes = {
            3: lambda: exchange(leaves[0]),
            5: lambda: exchange(ours.state[leaves[1]]["exp_avg"]),
            7: lambda: setattr(leaves[0], "grad", leaves[0].grad.redistribute(placements=[Replicate()])),
        }
        for number in range(9):
            for leaf, whole in zip(leaves, plain):
                whole.grad = torch.randn(whole.shape)
                leaf.grad = distribute_tensor(whole.grad, mesh, [Shard(0)])
            if number in changes:
                changes[number]()
            before = len(made)
            ours.step()
            served = len(made) == before and bool(_report.outcome_of(ours).fused)
            assert served is (number not in (0, 8, *changes)), (number, vars(_report.outcome_of(ours)))
            assert bool(_report.outcome_of(ours).fused) is (number != 7)
            made.clear()
            theirs.step()
            for leaf, whole in zip(leaves, plain):
                torch.testing.assert_close(leaf.full_tensor(), whole, rtol=1e-5, atol=1e-6)
        # On another mesh a part of the same size has other elements.
        other = DeviceMesh("cpu", [1, 0])
        leaves[1].grad = DTensor.from_local(leaves[1].grad.to_local(), other, [Shard(0)])
        try:
            ours.step()
        except RuntimeError:  # of PyTorch's own step
            pass
        assert not _report.outcome_of(ours).fused
        print("equal")
        dist.destroy_process_group()
        """,
        ranks=2,
        OMP_NUM_THREADS="1",
        PACELINE_OPTIMIZER="Auto",
    )
    assert run.code == 0 and run.output.count("equal") == 2, run.output
