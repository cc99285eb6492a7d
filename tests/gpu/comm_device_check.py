#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives of a communicator's own on a GPU, by CUDA IPC: four ranks on one GPU against those of
processors, to the bit; in one host and as 2 x 2 hosts; beside a captured graph; with a rank that is
killed; and their time beside that of NCCL. Where the machine has an active RDMA port, 2 x 2 hosts
also by GPUDirect RDMA, and its time beside that of the way through the host's memory; else a row
says that this was not checked. Ends with 1 if a check failed.

On one device NCCL goes over sockets, so `ratio` (NCCL's time over ours) says nothing of GPUs with
NVLink. `floor_ms` is what the bytes alone take at the rate of a copy on this device, measured here:
all four ranks share its memory.

    tests/gpu/comm_device_check.py
"""

from __future__ import annotations

import functools
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from checks import emit, run
from paceline import comm
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, LIMIT_S = 4, 45
# processes have a device in turn, for some milliseconds each, and who waits for another one has its
# turns too
TIMES_LIMIT_S = 120
together = Ranks(__file__, RANKS, LIMIT_S)
DEVICE = together.device
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)
# What a rank reads and writes of its array's bytes: a copy in, the sum of a shard out of all ranks'
# slots, a copy out.
TRAFFIC = 2 + (RANKS + 1) / RANKS + 2
# Of the other collectives: the pieces of their outputs and inputs, and what all ranks of a host
# read and write, in pieces.
PIECES = {
    "allgather": (RANKS, 1),
    "reduce_scatter": (1, RANKS),
    "alltoall": (RANKS, RANKS),
    "broadcast": (1, 1),
    "reduce": (1, 1),
}
MOVED = {
    "allgather": RANKS * (2 + 2 * RANKS),
    "reduce_scatter": RANKS * (2 * RANKS + RANKS + 1),
    "alltoall": RANKS * 4 * RANKS,
    "broadcast": 2 * RANKS,
    "reduce": 2 * RANKS + RANKS + 1 + 2,
}
ROOT = 1  # of broadcasts and reduces
# Of arrays between hosts: parts of a few bytes, on which RDMA devices' libraries have ways of their
# own, whole chunks, and last chunks that are small.
COUNTS = (1, 2, 3, 7, 8, 16, 31, 33, 65, 4099, 3_000_017)
# Why GPUs' lanes may go through the host's memory on a machine that has nothing to check GPUDirect
# RDMA with: no device, no active port, a GPU or a kernel without dma-buf and peer memory, a library
# that knows no RDMA. Any other reason is a failure of what is checked.
NO_GPUDIRECT_HERE = re.compile(
    r"GPUs' lanes through the host's memory: rank \d+: ("
    r"this library was built without the headers of libibverbs|no libibverbs: .*|no RDMA device|\S+"
    r" is not ACTIVE(; \S+ is not ACTIVE)*|its GPU lets no RDMA device at its memory .*|"
    r"\S+ cannot register \d+ bytes of the GPU: by dma-buf: "
    r"(the driver makes none of this GPU|libibverbs has no"
    r" ibv_reg_dmabuf_mr|cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED|"
    r"ibv_reg_dmabuf_mr: (Operation|Protocol) not supported)"
    r"; by peer memory \(nvidia_peermem\): ibv_reg_mr: Bad address)"
)


def communicator(hosts: int, rank: int, options: str = "") -> comm.Communicator:
    host = f"host-{rank * hosts // RANKS}"
    plan = f"algorithm=hierarchical {options}".strip()
    return comm.Communicator(
        host=host, plan=plan, device=DEVICE, timeout=timedelta(seconds=LIMIT_S // 2)
    )


def sums_as_on_the_cpu(ours: comm.Communicator, rank: int, counts: tuple[int, ...]) -> None:
    stream = torch.cuda.Stream(DEVICE)
    with torch.cuda.stream(stream):
        for dtype in DTYPES:
            for count in counts:
                generator = torch.Generator().manual_seed(rank)
                given = (torch.randn(count, generator=generator) * 1000).to(dtype)
                tensor = given.to(DEVICE, non_blocking=True)
                torch.cuda._sleep(
                    5_000_000
                )  # the input comes late: what does not wait for it sums something else
                tensor.add_(1).sub_(1)
                wanted = ours.allreduce((given + 1).sub_(1))
                found = ours.allreduce(
                    tensor
                ).clone()  # read in the stream, without a wait of the host
                assert torch.equal(found.cpu(), wanted), (dtype, count)


@together.check
def sums_in_a_host_have_the_processors_bits(rank: int) -> None:
    with communicator(1, rank) as ours:
        sums_as_on_the_cpu(ours, rank, (0, 1, 7, 4099, 5_000_011))


@together.check
def sums_between_hosts_have_the_processors_bits(rank: int) -> None:
    with communicator(2, rank) as ours:
        sums_as_on_the_cpu(ours, rank, COUNTS)


def by_us(
    ours: comm.Communicator, name: str, output: torch.Tensor, given: torch.Tensor
) -> torch.Tensor:
    return getattr(ours, name)(output, ROOT if name in ("broadcast", "reduce") else given)


def call(
    ours: comm.Communicator, name: str, output: torch.Tensor, given: torch.Tensor
) -> torch.Tensor:
    if name in ("broadcast", "reduce"):
        output.copy_(given)
    return by_us(ours, name, output, given)


def wanted_of(
    ours: comm.Communicator, name: str, output: torch.Tensor, given: torch.Tensor
) -> torch.Tensor:
    if name == "reduce":  # has the bits of an allreduce
        total = ours.allreduce(given.clone())
        return total if ours.rank == ROOT else given
    return call(ours, name, output, given)


def moves_as_on_the_cpu(ours: comm.Communicator, rank: int, counts: tuple[int, ...]) -> None:
    stream = torch.cuda.Stream(DEVICE)
    with torch.cuda.stream(stream):
        for name, (outputs, inputs) in PIECES.items():
            for dtype in DTYPES:
                for count in counts:
                    generator = torch.Generator().manual_seed(rank)
                    given = torch.randn(count * inputs, generator=generator) * 10
                    # Of whole numbers halves have one sum, however often they are rounded.
                    given = (
                        given.round() if dtype in (torch.float16, torch.bfloat16) else given
                    ).to(dtype)
                    wanted = wanted_of(ours, name, torch.zeros(count * outputs, dtype=dtype), given)
                    late = torch.zeros(given.shape, dtype=dtype, device=DEVICE)
                    output = torch.empty(count * outputs + 1, dtype=dtype, device=DEVICE)[
                        1:
                    ]  # at no good address
                    torch.cuda._sleep(
                        5_000_000
                    )  # the input comes late, and the output is in use until then
                    late.copy_(given)
                    output.fill_(99)
                    found = call(
                        ours, name, output, late
                    ).clone()  # read in the stream, without a wait of the host
                    assert torch.equal(found.cpu(), wanted), (name, dtype, count)


@together.check
def other_collectives_in_a_host_have_the_processors_bits(rank: int) -> None:
    with communicator(1, rank) as ours:
        moves_as_on_the_cpu(ours, rank, (0, 1, 4099, 1_000_003))


@together.check
def other_collectives_between_hosts_have_the_processors_bits(rank: int) -> None:
    with communicator(2, rank) as ours:
        moves_as_on_the_cpu(ours, rank, (1, 4099, 500_003))


@together.check
def pieces_that_differ_have_the_processors_bits(rank: int) -> None:
    def share(source: int, to: int) -> int:
        return (5 * source + 3 * to + 1) % 4 * 700_001  # of nothing too

    sent, received = (
        [share(rank, one) for one in range(RANKS)],
        [share(one, rank) for one in range(RANKS)],
    )
    for hosts in (1, 2):
        with communicator(hosts, rank) as ours:
            given = torch.randn(sum(sent), generator=torch.Generator().manual_seed(rank))
            wanted = ours.alltoall(torch.zeros(sum(received)), given, received, sent)
            found = ours.alltoall(
                torch.zeros(sum(received), device=DEVICE), given.to(DEVICE), received, sent
            )
            assert torch.equal(found.cpu(), wanted), hosts


@together.check
def calls_follow_each_other_without_a_pause(rank: int) -> None:
    """Through the same slots, each reading what the one before has written."""
    with communicator(1, rank) as ours:
        whole = torch.zeros(RANKS * 3_000_000, device=DEVICE)
        piece = torch.zeros(3_000_000, device=DEVICE)
        for number in range(10):
            piece.fill_(float(number + rank))
            ours.allgather(whole, piece)
            ours.allreduce(whole)
            ours.reduce_scatter(piece, whole)
            ours.broadcast(piece, number % RANKS)
            assert bool((piece == float((number + number % RANKS) * RANKS * RANKS)).all()), number


@together.check
def many_at_once_beside_computing(rank: int) -> None:
    """Started one after another while the device computes, and read in the end."""
    with communicator(1, rank) as ours:
        weights = torch.randn(2048, 2048, device=DEVICE)
        started = []
        for number in range(40):
            weights = torch.tanh(weights @ weights)
            started.append(
                ours.allreduce_start(
                    torch.full((100_003 + number,), float(number + rank), device=DEVICE)
                )
            )
        for number, one in enumerate(started):
            wanted = float(sum(number + other for other in range(RANKS)))
            assert bool((one.wait() == wanted).all()), number


@together.check
def a_graph_is_captured_and_replayed_beside_it(rank: int) -> None:
    with communicator(1, rank) as ours:
        source = torch.ones(1_000_003, device=DEVICE)
        result = torch.zeros_like(source)
        torch.cuda.synchronize()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(DEVICE)
        # Moves while the other stream is being captured, in the mode that forbids most to all
        # threads.
        under_way = ours.allreduce_start(torch.full((20_000_003,), float(rank), device=DEVICE))
        with torch.cuda.graph(graph, stream=stream):
            result.copy_(source * 2)
            try:
                ours.allreduce_start(result)
            except ValueError as why:
                assert "captured" in str(why), why
            else:
                raise AssertionError("a captured allreduce was not refused")
        assert bool((under_way.wait() == 6.0).all())
        for number in range(5):
            source.fill_(float(number))
            graph.replay()
            assert bool((ours.allreduce(result.clone()) == 8.0 * number).all())


@together.check
def its_memory_is_given_back(rank: int) -> None:
    # NCCL allocates at its first collective.
    dist.barrier()
    torch.cuda.synchronize()
    with communicator(1, rank) as ours:
        ours.barrier()
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info(DEVICE)[0]
        assert ours.device_bytes > 0
        ours.barrier()
    dist.barrier()
    torch.cuda.synchronize()
    freed = torch.cuda.mem_get_info(DEVICE)[0] - before
    assert freed >= ours.device_bytes * RANKS // 2, (
        f"{freed} bytes of {RANKS} pools of {ours.device_bytes}"
    )


@together.check
def tensors_are_freed_after_its_end(rank: int) -> None:
    """PyTorch records an event then in each stream that a tensor was used in."""
    for hosts in (1, 2):
        with communicator(hosts, rank) as ours:
            tensors = [ours.allreduce(torch.ones(1_000_003, device=DEVICE)) for _ in range(4)]
        assert bool((tensors[0] == RANKS).all())
        del tensors
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert float(torch.ones(1000, device=DEVICE).sum()) == 1000


left_open: list[comm.Communicator] = []


def trained(rank: int, hook: bool, **options: bool) -> torch.Tensor:
    """The parameters after some steps. The communicator stays open, for the end of the process to
    close.
    """
    torch.manual_seed(5)
    layers = [nn.Linear(64, 513), nn.ReLU(), nn.Linear(513, 513), nn.ReLU(), nn.Linear(513, 1)]
    ddp = DistributedDataParallel(
        nn.Sequential(*layers).to(DEVICE), device_ids=[0], bucket_cap_mb=1, **options
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    if hook:
        sums = comm.ddp_hook(ddp, transport="ipc", host=f"host-{rank * 2 // RANKS}")
        assert isinstance(sums, comm.Communicator) and sums.device == DEVICE, sums
        left_open.append(sums)
    generator = torch.Generator().manual_seed(rank)
    for step in range(5):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        ddp(torch.randn(32, 64, generator=generator).to(DEVICE)).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in ddp.parameters()])


@together.check
def gradients_are_pytorchs(rank: int) -> None:
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        ours, theirs = trained(rank, True, **options), trained(rank, False, **options)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        first = ours.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, ours), "ranks differ"


@functools.partial(together.check, killed=(1,))
def a_killed_rank_is_named_and_the_others_end(rank: int) -> None:
    ours = communicator(1, rank)
    data = torch.ones(50_000_003, device=DEVICE)
    ours.allreduce(data)
    ours.barrier()
    started = ours.allreduce_start(data)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        for _ in range(100):
            started.wait()
            started = ours.allreduce_start(data)
    except comm.CommError as error:
        assert error.rank == 1, error
    else:
        raise AssertionError("a dead rank was summed")
    ours.close()
    assert time.monotonic() - began < 40
    # The device serves on.
    assert float(torch.ones(1000, device=DEVICE).sum()) == 1000


def milliseconds(work: Callable[[], object], times: int) -> float:
    """The lower quartile of calls, each until its stream has come to its end; all ranks begin
    together.
    """
    taken = []
    for _ in range(times):
        dist.barrier()
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.quantiles(taken, n=4)[0]


def copy_rate() -> float:
    """Bytes a second that a copy reads and writes, this rank's alone."""
    source = torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    target.copy_(source)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        target.copy_(source)
    torch.cuda.synchronize()
    return 40 * source.numel() / (time.perf_counter() - began)


def copy_rate_of_one(rank: int) -> float:
    """Rank 0's, for all. The others wait on the host: a kernel of NCCL's that waits would have its
    turns of the device meanwhile.
    """
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("copy rate", str(copy_rate()))
    return float(store.get("copy rate"))


@functools.partial(together.check, limit_s=TIMES_LIMIT_S)
def times_beside_nccl(rank: int) -> None:
    rate = copy_rate_of_one(rank)
    sizes = {1: 15, 16: 15, 128: 5}  # times of each
    arrays = {mib: torch.ones(mib << 18, device=DEVICE) for mib in sizes}
    nccl = {}
    for mib, times in sizes.items():
        nccl[mib] = milliseconds(lambda data=arrays[mib]: dist.all_reduce(data.fill_(1.0)), times)
    for hosts in (1, 2):
        with communicator(hosts, rank) as ours:
            for mib, times in sizes.items():
                by_us = milliseconds(
                    lambda data=arrays[mib]: ours.allreduce(data.fill_(1.0)), times
                )
                by_nccl = nccl[mib]
                if rank == 0:
                    row = {"allreduce": f"{RANKS} ranks on one GPU, as {hosts} hosts", "mib": mib}
                    row |= {"ms": round(by_us, 3), "nccl_by_sockets_ms": round(by_nccl, 3)}
                    row |= {"ratio": round(by_nccl / by_us, 2)}
                    row |= {"floor_ms": round(RANKS * TRAFFIC * (mib << 20) / rate * 1000, 3)}
                    emit(row)


def by_nccl(name: str, output: torch.Tensor, given: torch.Tensor) -> None:
    if name == "allgather":
        dist.all_gather_into_tensor(output, given)
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(output, given)
    elif name == "alltoall":
        dist.all_to_all_single(output, given)
    elif name == "broadcast":
        dist.broadcast(output, ROOT)
    else:
        dist.reduce(output, ROOT)


@functools.partial(together.check, limit_s=TIMES_LIMIT_S)
def times_of_other_collectives_beside_nccl(rank: int) -> None:
    rate = copy_rate_of_one(rank)
    sizes = {1: 15, 16: 5}  # MiB of a piece, and times of each
    nccl = {}
    arrays = {}
    for name, (outputs, inputs) in PIECES.items():
        for mib, times in sizes.items():
            arrays[name, mib] = [
                torch.ones(pieces * mib << 18, device=DEVICE) for pieces in (outputs, inputs)
            ]
            nccl[name, mib] = milliseconds(
                functools.partial(by_nccl, name, *arrays[name, mib]), times
            )
    for hosts in (1, 2):
        with communicator(hosts, rank) as ours:
            for (name, mib), data in arrays.items():
                taken = milliseconds(functools.partial(by_us, ours, name, *data), sizes[mib])
                row = {
                    name: f"{RANKS} ranks on one GPU, as {hosts} hosts",
                    "piece_mib": mib,
                    "ms": round(taken, 3),
                }
                row |= {
                    "nccl_by_sockets_ms": round(nccl[name, mib], 3),
                    "ratio": round(nccl[name, mib] / taken, 2),
                }
                if hosts == 1:
                    row["floor_ms"] = round(MOVED[name] * (mib << 20) / rate * 1000, 3)
                if rank == 0:
                    emit(row)


@together.check
def gpudirect_has_the_processors_bits(rank: int) -> None:
    """Two hosts on this machine, that speak by its RDMA device. Once NCCL has begun without."""
    dist.barrier()
    del os.environ["NCCL_IB_DISABLE"]
    # What is right between a GPU and an RDMA device far from it is right between near ones.
    os.environ["NCCL_NET_GDR_LEVEL"] = "SYS"
    with communicator(2, rank) as ours, communicator(2, rank, "gpudirect=off") as other:
        notes = [note.strip() for note in ours.plan().split("#")[1:]]
        directly = [note for note in notes if "by GPUDirect" in note]
        if not directly:
            why = [note for note in notes if note.startswith("GPUs' lanes")]
            assert len(why) == 1 and NO_GPUDIRECT_HERE.fullmatch(why[0]), (
                f"no GPUDirect RDMA: {why}"
            )
            if rank == 0:
                emit({"gpudirect": "not checked", "why": why[0]})
            return
        sums_as_on_the_cpu(ours, rank, COUNTS)
        data = torch.ones(16 << 18, device=DEVICE)
        ms = {
            way: milliseconds(lambda it=it: it.allreduce(data.fill_(1.0)), 15)
            for way, it in (("direct", ours), ("host", other))
        }
        if rank == 0:
            row = {
                "gpudirect": directly[0],
                "mib": 16,
                "ms": round(ms["direct"], 3),
                "through_the_hosts_memory_ms": round(ms["host"], 3),
            }
            emit(row | {"ratio": round(ms["host"] / ms["direct"], 2)})


if __name__ == "__main__":
    if len(sys.argv) > 2:
        together.take_part(sys.argv[2:], "nccl")
    else:
        sys.exit(run(together.checks))
