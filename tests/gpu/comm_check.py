# SPDX-License-Identifier: Apache-2.0
"""Gradients of DistributedDataParallel by way of hosts over NCCL's groups, against PyTorch's own: four ranks on one GPU that believe themselves on hosts of
two. NCCL takes a second rank on a device where each has an NCCL_HOSTID of its own, and goes over sockets of loopback then: that shows what is right and says
nothing of speed. Ends with 1 if a check failed.

    tests/gpu/comm_check.py [cpu]    cpu: the same over gloo, without batch norms, where there is no GPU"""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from checks import Check, run
from paceline import comm
from paceline.comm import _hierarchy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, LIMIT_S = 4, 5, 75
ON_CPU = sys.argv[1:2] == ["cpu"]
DEVICE = torch.device("cpu" if ON_CPU else "cuda:0")
checks: list[Check] = []
by_name: dict[str, Callable[[int], None]] = {}


def in_ranks(names: list[str]) -> None:
    """Runs these checks, one after another, in processes of their own, one for each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS)}
    environment |= {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, DEVICE.type, *names],
            env={**environment, "RANK": str(rank), "NCCL_HOSTID": f"host-of-{rank}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = []
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=LIMIT_S)[0])
        except subprocess.TimeoutExpired:
            rank.kill()
            said.append(rank.communicate()[0] + f"\nkilled after {LIMIT_S} s")
    codes = [rank.returncode for rank in ranks]
    assert codes == [0] * RANKS, f"codes {codes}\n" + "\n".join(said)


def all_ranks(function: Callable[[int], None]) -> Callable[[int], None]:
    """A check that all ranks run, each with its rank."""

    def check() -> None:
        in_ranks([function.__name__])

    check.__name__ = function.__name__
    by_name[function.__name__] = function
    checks.append(check)
    return function


def model_of() -> nn.Module:
    """Batch norms between layers of a bucket each: their collectives are under way while gradients are."""
    torch.manual_seed(5)
    layers: list[nn.Module] = [nn.Linear(64, 513)]
    for _ in range(4):
        layers += [nn.ReLU() if ON_CPU else nn.BatchNorm1d(513), nn.Linear(513, 513)]
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers, nn.Linear(513, 1)).to(DEVICE))


def trained(rank: int, hook: bool, compression: str = "Disabled", **options: Any) -> torch.Tensor:
    """The parameters after some steps, one of them accumulated; the same bits on all ranks."""
    devices = None if ON_CPU else [0]
    ddp = DistributedDataParallel(model_of(), device_ids=devices, bucket_cap_mb=1, **options)
    if hook:
        sums = comm.ddp_hook(ddp, compression=compression, host=f"host-{rank // 2}")
        assert sums.shape() == "2,2", sums.plan()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
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
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}):
        ours, theirs = trained(rank, True, **options), trained(rank, False, **options)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@all_ranks
def halves_between_hosts_are_near(rank: int) -> None:
    exact = trained(rank, False)
    for compression, bits in (("FP16", 11), ("BF16", 8)):
        lossy = trained(rank, True, compression)
        assert not torch.equal(lossy, exact), "nothing was compressed"
        torch.testing.assert_close(lossy, exact, rtol=2.0 ** (3 - bits), atol=2.0 ** (1 - bits))


if not ON_CPU:

    @all_ranks
    def the_host_waits_in_no_backward(rank: int) -> None:
        """PyTorch raises where the host would wait for the device."""
        ddp = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.Linear(512, 512)).to(DEVICE), device_ids=[0])
        comm.ddp_hook(ddp, compression="FP16", host=f"host-{rank // 2}")
        batch = torch.randn(32, 64, device=DEVICE)
        for step in range(STEPS):
            torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
            ddp(batch).sum().backward()
        torch.cuda.set_sync_debug_mode("default")


def one_rank(names: list[str]) -> None:
    if ON_CPU:
        _hierarchy.carries = lambda model: True
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("gloo" if ON_CPU else "nccl", timeout=datetime.timedelta(seconds=LIMIT_S))
    for name in names:
        by_name[name](dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        one_rank(sys.argv[2:])
    elif ON_CPU:
        in_ranks(list(by_name))
    else:
        sys.exit(run(checks))
