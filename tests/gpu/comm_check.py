# SPDX-License-Identifier: Apache-2.0
"""Checks gradients of DistributedDataParallel that go by way of hosts over NCCL's groups.

Four ranks on one GPU take themselves for two hosts of two ranks. Their gradients are compared with
PyTorch's own, with and without compression between hosts. The codes on the GPU are compared with
the CPU's, and their rates with this device's copy rate.

NCCL accepts a second rank on a device if each has an NCCL_HOSTID of its own. It then uses sockets
on loopback, so the result is right but its speed means nothing. Ends with 1 if a check failed.

    tests/gpu/comm_check.py [cpu]    cpu: the same over gloo, without batch norms, where there is no
    GPU
"""

from __future__ import annotations

import datetime
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import paceline
import torch
import torch.distributed as dist
from checks import Check, emit, run
from paceline import comm
from paceline.comm import _codes, _hierarchy, _measured, _patch
from paceline.comm._layout import Layout
from paceline.comm._members import Members
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, LIMIT_S = 4, 5, 75
together = Ranks(__file__, RANKS, LIMIT_S)
checks, all_ranks, ON_CPU, DEVICE = (
    together.checks,
    together.check,
    together.on_cpu,
    together.device,
)
PAIRS = ("a", "a", "b", "b")  # the host of each rank
KINDS = {"FP16": _codes.FP16, "BF16": _codes.BF16, "Int8": _codes.INT8, "OneBit": _codes.ONE_BIT}


def model_of() -> nn.Module:
    """Batch norms between layers of a bucket each: their collectives are under way while gradients
    are.
    """
    torch.manual_seed(5)
    layers: list[nn.Module] = [nn.Linear(64, 513)]
    for _ in range(4):
        layers += [nn.ReLU() if ON_CPU else nn.BatchNorm1d(513), nn.Linear(513, 513)]
    return nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(*layers, nn.Linear(513, 1)).to(DEVICE)
    )


def trained(
    rank: int,
    hook: bool,
    compression: Any = "Disabled",
    hosts: Sequence[str] = PAIRS,
    delay: int = 0,
    **options: Any,
) -> torch.Tensor:
    """The parameters after some steps, one of them accumulated; the same bits on all ranks.
    `compression`: a text, or what makes one of the optimizer. `delay`: cycles that each layer waits
    on the device, as many times as the rank's number says.
    """
    devices = None if ON_CPU else [0]
    ddp = DistributedDataParallel(model_of(), device_ids=devices, bucket_cap_mb=1, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    if hook:
        how = compression(optimizer) if callable(compression) else compression
        sums = comm.ddp_hook(ddp, compression=how, host=hosts[rank])
        assert isinstance(sums, _hierarchy.Hierarchy), sums
    for layer in ddp.module if delay else ():
        layer.register_full_backward_hook(lambda *_: torch.cuda._sleep(delay * rank))
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        batches = [torch.randn(32, 64, generator=generator).to(DEVICE) for _ in range(2)]
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        if not options.get("static_graph"):  # PyTorch's own does not take no_sync in the first step
            with ddp.no_sync():
                ddp(batches[0]).pow(2).mean().backward()
        ddp(batches[1]).pow(2).mean().backward()
        optimizer.step()
    whole = torch.cat([parameter.detach().flatten() for parameter in ddp.parameters()])
    everyone = [torch.empty_like(whole) for _ in range(RANKS)]
    dist.all_gather(everyone, whole)
    assert all(torch.equal(one, whole) for one in everyone), "ranks differ"
    assert whole.isfinite().all()
    return whole


@all_ranks
def gradients_by_way_of_hosts_are_pytorchs(rank: int) -> None:
    several: tuple[dict[str, Any], ...] = (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
    )
    for options in several:
        ours, theirs = trained(rank, True, **options), trained(rank, False, **options)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@all_ranks
def hosts_of_different_sizes_are_pytorchs(rank: int) -> None:
    ours, theirs = trained(rank, True, hosts=("a", "b", "b", "b")), trained(rank, False)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def sums_by_hosts(hosts: Sequence[str] = PAIRS, **options: Any) -> _hierarchy.Hierarchy:
    timeout = datetime.timedelta(seconds=LIMIT_S)
    sums = _hierarchy.Hierarchy(Members(), Layout.of(list(hosts)), DEVICE, timeout, **options)
    sums.prove(False)
    return sums


@all_ranks
def sums_of_any_size_are_the_groups(rank: int) -> None:
    """Integers, whose sums have the same bits in any order, up to the borders of shards."""
    dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)
    for hosts in (PAIRS, ("a", "b", "a", "b"), ("a", "b", "b", "b")):
        sums = sums_by_hosts(hosts)
        for dtype in dtypes:
            for count in (0, 1, 2, 3, 4, 5, 1999, 2000, 2001, 100_003):
                generator = torch.Generator().manual_seed(100 * count + rank)
                ours = torch.randint(-9, 10, (count,), generator=generator).to(DEVICE, dtype)
                theirs = ours.clone()
                sums.all_reduce(ours, async_op=True).wait()
                dist.all_reduce(theirs)
                assert torch.equal(ours, theirs), (hosts, dtype, count)


@all_ranks
def the_quicker_way_is_found(rank: int) -> None:
    sizes = [1 << 20, 4 << 20, 25 << 20]
    sums = sums_by_hosts(sizes=sizes)
    began = time.perf_counter()
    choice = sums.measure()
    took = time.perf_counter() - began
    everyone: list[Any] = [None] * RANKS
    dist.all_gather_object(everyone, str(choice))
    assert set(everyone) == {str(choice)}, everyone
    for size in sizes:
        ours = torch.full((size // 4,), rank + 1.0, device=DEVICE)
        sums.all_reduce(ours, async_op=True).wait()
        assert bool(torch.all(ours == 10)), size
    if not ON_CPU:
        assert choice.rows and took < 2, (took, choice.rows)
        if rank == 0:
            emit({"sums": sums.plan(), "measured_s": round(took, 2)})
    sums.close()
    ours = torch.ones(8, device=DEVICE)
    dist.all_reduce(ours)
    assert bool(torch.all(ours == RANKS)), "the model's group is as before"


@all_ranks
def auto_alone_trains_as_pytorch(rank: int) -> None:
    """Both where the way by hosts is taken for quicker and where it is not."""
    plain = trained(rank, False)
    os.environ.update(PACELINE_COMMUNICATION="Auto", NCCL_NET="Socket")
    os.environ.pop("PACELINE_DISABLE", None)
    _patch.own_host = lambda: PAIRS[rank]
    usual = _measured.MARGIN, _measured.BUDGET_S
    for margin, state in ((0.0, "on"), (1e9, "off")):
        _measured.MARGIN, _measured.BUDGET_S = margin, 1e9  # on a busy machine, too
        _patch.install()
        model = DistributedDataParallel(model_of(), device_ids=None if ON_CPU else [0])
        told = paceline.explain(as_dict=True)["communication"]["seen"]
        ours = trained(rank, False)
        _patch.uninstall()
        assert [one["state"] for one in told][-1:] == [state], (model, told)
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    _measured.MARGIN, _measured.BUDGET_S = usual


@all_ranks
def every_compression_is_the_same_on_all_ranks_and_near(rank: int) -> None:
    exact = trained(rank, False)
    for compression, allowed in (
        ("Int8", 1e-3),
        ("TopK:ratio=0.5", 2e-2),
        ("PowerSGD:rank=2,start=2", 2e-2),
        (comm.OneBit, 5e-2),
    ):
        lossy = trained(rank, True, compression)
        assert not torch.equal(lossy, exact), f"{compression}: nothing was compressed"
        worst = float((lossy - exact).abs().max())
        assert worst < allowed, f"{compression}: {worst} away, allowed is {allowed}"


@all_ranks
def halves_between_hosts_are_near(rank: int) -> None:
    exact = trained(rank, False)
    for compression, bits in (("FP16", 11), ("BF16", 8)):
        lossy = trained(rank, True, compression)
        assert not torch.equal(lossy, exact), "nothing was compressed"
        torch.testing.assert_close(lossy, exact, rtol=2.0 ** (3 - bits), atol=2.0 ** (1 - bits))


if not ON_CPU:

    @all_ranks
    def times_of_sums_flat_and_by_hosts(rank: int) -> None:
        """Printed, and no reason to fail: all of these ranks share one device and its loopback."""
        sums = sums_by_hosts()
        for mib in (1, 4, 25):
            array = torch.zeros(mib << 18, device=DEVICE)
            ways: tuple[Callable[[], Any], ...] = (
                lambda array=array: dist.all_reduce(array),
                lambda array=array: sums.all_reduce(array, async_op=True).wait(),
            )
            flat, by_hosts = map(seconds_of, ways)
            if rank == 0:
                row = {"sum_mib": mib, "flat_ms": round(flat * 1e3, 2)}
                row["by_hosts_ms"] = round(by_hosts * 1e3, 2)
                emit({**row, "ratio_to_flat": round(flat / by_hosts, 3)})

    @all_ranks
    def the_host_waits_in_no_backward(rank: int) -> None:
        """PyTorch raises where the host would wait for the device."""
        batch = torch.randn(32, 64, device=DEVICE)
        for compression in (
            "FP16",
            "Int8",
            "TopK:ratio=0.1",
            "PowerSGD:rank=2,start=2",
            "DGC",
            "OneBit",
            "OneBitAdam",
        ):
            model = nn.Sequential(nn.Linear(64, 512), nn.Linear(512, 512)).to(DEVICE)
            ddp = DistributedDataParallel(model, device_ids=[0])
            optimizer: Any = torch.optim.SGD(
                ddp.parameters(), lr=0.01, momentum=0.9 if compression == "DGC" else 0.0
            )
            if compression == "OneBitAdam":
                optimizer = comm.OneBitAdam(ddp.parameters(), freeze=2)
            how: Any = compression
            if compression == "DGC":
                how = comm.DGC(optimizer, clip=1.0)
            elif compression.startswith("OneBit"):
                how = comm.OneBit(optimizer)
            comm.ddp_hook(ddp, compression=how, host=PAIRS[rank])
            for step in range(STEPS):
                torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
                ddp(batch).sum().backward()
                torch.cuda.set_sync_debug_mode("default")
                optimizer.step()

    @all_ranks
    def ranks_that_come_at_other_times_are_pytorchs(rank: int) -> None:
        """So that batch norms' collectives and gradients' are under way beside each other in every
        order.
        """
        theirs = trained(rank, False)
        for delay in (10_000, 1_000_000):
            ours = trained(rank, True, delay=delay)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)

    @all_ranks
    def a_captured_step_is_a_step(rank: int) -> None:
        """Replayed, against the same steps as always: rests go on in a graph too."""
        for compression in ("Disabled", "Int8", "PowerSGD:rank=2,start=2"):
            steps, replays = (stepped(rank, compression, captured) for captured in (False, True))
            torch.testing.assert_close(replays, steps, rtol=0, atol=0)

    def check(function: Check) -> Check:
        checks.append(function)
        return function

    @check
    def codes_on_the_gpu_are_the_cpus() -> None:
        """The same values and rests, but for the order of a mean's additions."""
        generator = torch.Generator().manual_seed(1)
        for name, codec in KINDS.items():
            for count in (1, 255, 1025, 100_003):
                for arrays in (1, 3):
                    values = torch.randn(arrays * count, generator=generator)
                    values[: count // 4] *= 1e5
                    late = torch.randn(arrays * count, generator=generator) / 100
                    said = []
                    for device in (DEVICE, torch.device("cpu")):
                        rest = late.to(device, copy=True)
                        size = arrays * _codes.bytes_of(codec, count)
                        codes = torch.zeros(size, dtype=torch.uint8, device=device)
                        _codes.encode(codec, values.to(device), rest, codes, arrays)
                        out = torch.ones(count, device=device)
                        _codes.decode(codec, codes, out, sources=arrays, onto=True)
                        said.append([one.cpu() for one in (rest, out)])
                    for ours, theirs in zip(*said, strict=True):
                        what = f"{name}, {arrays} arrays of {count}"
                        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6), what

    @check
    def rates_of_the_codes_beside_a_copy() -> None:
        """Printed, and no reason to fail: other work on the device would be."""
        count = 1 << 27
        values, rest = torch.randn(count, device=DEVICE), torch.zeros(count, device=DEVICE)
        copy = 8 * count / seconds_of(lambda: rest.copy_(values))
        for name, codec in KINDS.items():
            size = _codes.bytes_of(codec, count)
            codes = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
            rest.zero_()
            encode = (12 * count + size) / seconds_of(
                functools.partial(_codes.encode, codec, values, rest, codes)
            )
            decode = (4 * count + size) / seconds_of(
                functools.partial(_codes.decode, codec, codes, rest)
            )
            row = {
                "codes": name,
                "copy_gb_s": round(copy / 1e9),
                "encode_of_copy": round(encode / copy, 2),
            }
            emit({**row, "decode_of_copy": round(decode / copy, 2)})


def stepped(rank: int, compression: str, captured: bool) -> torch.Tensor:
    """The parameters after some steps, the last of which are replays of one that was captured."""
    warm, number = 12, 18  # DistributedDataParallel asks for 11 before a capture
    generator = torch.Generator().manual_seed(rank)
    batches = [torch.randn(32, 64, generator=generator).to(DEVICE) for _ in range(number)]
    given, graph, side = batches[0].clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256)).to(DEVICE)
        ddp = DistributedDataParallel(model, device_ids=[0])
        comm.ddp_hook(ddp, compression=compression, host=PAIRS[rank])
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)

        def one_step() -> None:
            optimizer.zero_grad(set_to_none=True)
            ddp(given).pow(2).mean().backward()
            optimizer.step()

        for at, batch in enumerate(batches):
            given.copy_(batch)
            if not captured or at < warm:
                one_step()
                continue
            if at == warm:
                side.synchronize()
                # NCCL's watchdog asks for events meanwhile, on a thread of its own.
                with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                    one_step()
            graph.replay()
        side.synchronize()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def seconds_of(work: Callable[[], Any]) -> float:
    """On the device, the median of several."""
    work()
    times = []
    for _ in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        if ON_CPU:
            _hierarchy.carries = lambda model: True
        together.take_part(sys.argv[2:], "gloo" if ON_CPU else "nccl")
    elif ON_CPU:
        together.run(together.names)
    else:
        sys.exit(run(checks))
