# SPDX-License-Identifier: Apache-2.0
"""Gradients by way of hosts over PyTorch's own process groups. They are for GPUs and NCCL; here gloo's groups stand for NCCL's, and names for hosts. On a
GPU: tests/gpu/comm_check.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from programs import ROOT, Train
from test_comm import BEGIN, END, MODELS

NEW = int(torch.__version__.split(".")[0]) >= 2
pytestmark = pytest.mark.skipif(not NEW, reason="gloo of PyTorch 1.13 has no reduce_scatter_tensor")

# As a model on a GPU: what is forced is that this module takes it, and nothing else.
FORCED = """
        import functools
        from paceline.comm import _hierarchy
        _hierarchy.carries = lambda model: True
        host = f"host-{rank // 2}"
        def by_hosts(model=None, compression="Disabled", **options):
            ddp = wrap(False, model, **options)
            sums = paceline.comm.ddp_hook(ddp, compression=compression, host=host)
            assert isinstance(sums, _hierarchy.Hierarchy), sums
            return ddp
"""


def test_gradients_are_those_of_pytorch(train_by_fork: Train) -> None:
    """Integers have one sum in every order; others are held to torch's tolerance. Buckets of odd sizes, and of those that do not divide."""
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + """
        class Whole(nn.Module):
            def __init__(self, dtype):
                super().__init__()
                sizes = (1, 3, 4, 4099, 12000)
                self.weights = nn.ParameterList([nn.Parameter(torch.ones(n, dtype=dtype)) for n in sizes])
            def forward(self, x):
                return sum((w * (torch.arange(w.numel()) % 5 + 1).to(w.dtype) * x).sum() for w in self.weights)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
            seen = []
            for make in (by_hosts, functools.partial(wrap, False)):
                ddp = make(Whole(dtype))
                for _ in range(3):
                    ddp.zero_grad()
                    ddp(4.0 * (rank + 1)).abs().backward()
                seen.append(agreed(torch.cat([torch.view_as_real(p.grad).flatten() if p.grad.is_complex() else p.grad.float() for p in ddp.parameters()])))
            assert torch.equal(*seen) and seen[0].abs().sum() > 0, dtype
        def accumulate(ddp, step):
            with ddp.no_sync():
                ddp(torch.randn(8, 4), True).sum().backward()
            ddp(torch.randn(8, 4), True).pow(2).sum().backward()
        ways = (
            ({}, {}),
            ({"gradient_as_bucket_view": True}, {"to_none": False}),
            ({"static_graph": True}, {}),
            ({}, {"body": accumulate}),
            ({"find_unused_parameters": True}, {"use": False}),
        )
        for options, how in ways:
            ours, theirs = steps(by_hosts(**options), **how), steps(wrap(False, **options), **how)
            agreed(ours)
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (options, how, (ours - theirs).abs().max())
        # Two models by the same groups, and join().
        groups = len(dist.distributed_c10d._world.pg_map)
        one, other = by_hosts(), by_hosts()
        assert len(dist.distributed_c10d._world.pg_map) == groups
        mixed = lambda ddp, step: (one(torch.randn(8, 4), True).sum() + other(torch.randn(8, 4), True).sum()).backward()
        agreed(steps(one, body=mixed))
        agreed(torch.cat([p.grad.flatten() for p in other.parameters()]))
        def uneven(ddp):
            with ddp.join(divide_by_initial_world_size=False):
                for step in range(2 + rank):
                    ddp.zero_grad()
                    ddp(torch.full((2, 4), float(rank + 1)), True).sum().backward()
            return torch.cat([p.grad.flatten() for p in ddp.parameters()])
        ours, theirs = uneven(by_hosts()), uneven(wrap(False))
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (ours - theirs).abs().max()
        print(next(line for line in paceline.explain().splitlines() if "hierarchical hosts=2,2" in line))
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output
    assert (
        run.output.count("4 ranks, class Reordered, algorithm=hierarchical hosts=2,2 # over PyTorch's groups of gloo")
        == 4
    ), run.output


def test_three_hosts_with_ranks_in_turn(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + """
        host = f"host-{rank % 3}"
        ours, theirs = steps(by_hosts(), number=2), steps(wrap(False), number=2)
        agreed(ours)
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (ours - theirs).abs().max()
"""
        + END,
        ranks=6,
    )
    assert run.code == 0, run.output


def test_what_halves_lose_comes_later(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + """
        class Many(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(5001))
            def forward(self, x):
                return (self.weight * x).sum()
        torch.manual_seed(rank)
        # Of one host alone: what the wire adds to it is nothing, and rounds nothing.
        x = torch.randn(5001) * (rank < 2)
        x[7] = 0
        large = x.clone()
        large[7] = 3e5 * (rank < 2)  # beyond fp16's range, once
        mean = x.clone()
        dist.all_reduce(mean)
        mean /= ranks
        def step(ddp, x):
            ddp.zero_grad()
            ddp(x).backward()
            return ddp.module.weight.grad.clone()
        for compression, bits in (("FP16", 11), ("BF16", 8)):
            ddp = by_hosts(Many(), compression)
            for _ in range(2):
                assert torch.allclose(step(ddp, x), mean, rtol=1e-5, atol=1e-6), "nothing is compressed before"
            sums = agreed(step(ddp, large))
            assert sums.isfinite().all() and 0 < (sums - mean)[:7].abs().max() < 8 * 2.0**-bits
            for _ in range(63):
                sums += step(ddp, x)
            assert abs(sums[7] / 1.5e5 - 1) < 1e-3, sums[7]
            sums[7] = 0
            # Forgotten, the roundings of 64 steps add up; remembered, the last one is left, and that of the sum here.
            error = (sums - 64 * mean).abs() * 2.0**bits / mean.abs().clamp(min=0.1)
            assert error.max() < 4, (compression, error.max())
            state = paceline.comm.state_dict(ddp)
            assert state["compression"].startswith(compression) and state["hosts"] == "2,2" and state["passes"] == 66
            (bucket,) = state["buckets"].values()
            assert bucket["rest"].shape == (2504,) and bool(bucket["rest"].any()) == (rank < 2)
            # A run that goes on from there makes the same step, when it has made two uncompressed ones.
            again = by_hosts(Many(), compression)
            paceline.comm.load_state_dict(again, state)
            theirs = step(ddp, x)
            ours = [step(again, x) for _ in range(3)]
            assert torch.equal(ours[2], theirs) and not torch.equal(ours[1], theirs)
            # What is not finite stays so, and is not remembered.
            for bad in (float("inf"), float("nan")):
                worse = x.clone()
                worse[5] = bad
                assert not step(ddp, worse)[5].isfinite()
                assert agreed(step(ddp, x)).isfinite().all()
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


# A model of one tensor, whose gradient is what it is called with; and what all owners of shards have lost of it, put together.
LOST = """
        class Many(nn.Module):
            def __init__(self, count, dtype=torch.float32):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(count, dtype=dtype))
            def forward(self, x):
                return (self.weight * x).sum()
        def step(ddp, x):
            ddp.zero_grad()
            ddp(x).backward()
            return agreed(ddp.module.weight.grad.clone().float())
        def mean_of(x):
            mean = x.double()
            dist.all_reduce(mean)
            return (mean / ranks).float()
        def lost(ddp, hosts):
            (bucket,) = paceline.comm.state_dict(ddp)["buckets"].values()
            everyone = [None] * ranks
            dist.all_gather_object(everyone, bucket["rest"])
            lanes = min(map(len, hosts))
            return torch.cat([sum(everyone[host[lane]] for host in hosts) for lane in range(lanes)])
"""


def test_what_any_code_loses_is_kept_by_who_lost_it(train_by_fork: Train) -> None:
    """What has arrived in all steps, and what the ranks still hold, is all that was sent: of every code, in float32 and in 16 bits."""
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + LOST
        + """
        torch.manual_seed(rank)
        count = 9001
        sgd = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        for compression in ("FP16", "BF16", "Int8", "TopK:ratio=0.1", paceline.comm.OneBit(sgd)):
            for dtype in (torch.float32, torch.bfloat16):
                if dtype is torch.bfloat16 and compression in ("FP16", "BF16"):
                    continue
                ddp = by_hosts(Many(count, dtype), compression)
                said, sent = torch.zeros(count), torch.zeros(count)
                for number in range(6):
                    x = torch.randn(count).to(dtype)
                    got = step(ddp, x)
                    exact = mean_of(x)
                    if number < 2:
                        assert torch.allclose(got, exact, rtol=2e-2, atol=2e-2), "nothing is compressed before"
                        continue
                    assert not torch.equal(got, exact), "nothing is compressed"
                    said += got
                    sent += exact
                kept = lost(ddp, ((0, 1), (2, 3)))
                assert kept.any() and kept.dtype is torch.float32, kept.dtype
                # In 16 bits a sum is rounded once more, in the end.
                close = 1e-5 if dtype is torch.float32 else 0.05
                worst = (said + kept[:count] - sent).abs().max()
                assert worst < close * max(1, said.abs().max()), (compression, dtype, worst)
                # What is not finite stays so for the step, and is not remembered.
                for bad in (float("inf"), float("nan")):
                    worse = x.clone()
                    worse[5] = bad if rank == 3 else 0
                    assert not step(ddp, worse)[5].isfinite(), (compression, bad)
                    assert step(ddp, x).isfinite().all(), (compression, bad)
        # Halves are as few bytes as they are.
        ddp = by_hosts(Many(count, torch.bfloat16), "FP16")
        [step(ddp, x) for _ in range(4)]
        assert not paceline.comm.state_dict(ddp)["buckets"]
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_momentum_is_gathered_by_who_owns_a_shard(train_by_fork: Train) -> None:
    """Deep gradient compression as its paper has it, of each host's sum."""
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + LOST
        + """
        sgd = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        ddp = by_hosts(Many(5000), paceline.comm.DGC(sgd, ratio=0.1))
        size = 2504
        u, v = torch.zeros(2, 2, size), torch.zeros(2, 2, size)  # of each host, of each shard
        plain = torch.zeros(5000)
        for number in range(8):
            everyone = [torch.randn(5000, generator=torch.Generator().manual_seed(100 * number + r)) for r in range(ranks)]
            got = step(ddp, everyone[rank])
            if number < 2:  # SGD's own momentum
                plain = 0.9 * plain + sum(everyone) / ranks
                assert torch.allclose(got, plain, rtol=1e-4, atol=1e-5)
                continue
            expected = torch.zeros(2, size)
            for host in range(2):
                own = (everyone[2 * host] + everyone[2 * host + 1]) / ranks
                shards = torch.nn.functional.pad(own, (0, 2 * size - 5000)).view(2, size)
                for shard in range(2):
                    u[host, shard] = 0.9 * u[host, shard] + shards[shard]
                    v[host, shard] += u[host, shard]
                    where = v[host, shard].abs().topk(251).indices
                    expected[shard][where] += v[host, shard][where]
                    u[host, shard][where] = v[host, shard][where] = 0
            assert torch.allclose(got, expected.flatten()[:5000], rtol=1e-4, atol=1e-5), (number, (got - expected.flatten()[:5000]).abs().max())
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_updates_of_1_bit_adam_go_by_hosts(train_by_fork: Train) -> None:
    """In signs once the variance is frozen, and late rather than never."""
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + LOST
        + """
        def moved(compressed):
            model = Many(5000)
            optimizer = paceline.comm.OneBitAdam(model.parameters(), lr=0.01, freeze=3)
            ddp = by_hosts(model, paceline.comm.OneBit(optimizer) if compressed else "Disabled")
            torch.manual_seed(rank)
            x = torch.randn(5000)
            for number in range(30):
                step(ddp, x + torch.randn(5000) / 10)
                optimizer.step()
                if compressed:
                    assert bool(paceline.comm.state_dict(ddp)["buckets"]) == (number >= 3), number
            return agreed(model.weight.detach().clone())
        exact, coded = moved(False), moved(True)
        assert not torch.equal(exact, coded)
        assert (exact - coded).abs().mean() < exact.abs().mean() / 4, ((exact - coded).abs().mean(), exact.abs().mean())
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_power_sgd_is_that_of_the_communicator(train_by_fork: Train) -> None:
    """Made orthonormal by PyTorch's operators, as on a GPU, against the library's own; and a step that is not finite ends with that step."""
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + """
        from paceline.comm import _power
        how = paceline.comm.PowerSGD(rank=2, start=2, seed=7)
        def trained(by_operators):
            torch.manual_seed(3)
            model = nn.Sequential(nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, 64))
            if by_operators:
                ddp = by_hosts(model, how)
            else:
                ddp = DistributedDataParallel(model)
                paceline.comm.ddp_hook(ddp, compression=how, host=host)
            seen = []
            for number in range(7):
                torch.manual_seed(10 * number + rank)
                ddp.zero_grad()
                (ddp(torch.randn(16, 48)).pow(2).mean() * float("inf" if number == 4 and rank == 1 else 1)).backward()
                seen.append(agreed(torch.cat([p.grad.flatten() for p in ddp.parameters()])))
            return seen
        _hierarchy.carries = lambda model: False
        theirs = trained(False)
        _hierarchy.carries = lambda model: True
        _power.orthonormal = _power.orthonormal_by_operators
        ours = trained(True)
        for number, (one, other) in enumerate(zip(ours, theirs)):
            assert one.isfinite().all() == other.isfinite().all() == (number != 4), number
            if number != 4:
                assert torch.allclose(one, other, rtol=2e-3, atol=1e-6), (number, (one - other).abs().max())
        matrix = torch.randn(100, 3)
        matrix[:, 1] = 0
        q = _power.orthonormal_by_operators(matrix)
        assert not q[:, 1].any() and torch.allclose(q.t() @ q, torch.diag(torch.tensor([1.0, 0, 1])), atol=1e-6)
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_hosts_of_different_sizes_and_groups_of_some_ranks(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + LOST
        + """
        x = (torch.arange(9001) % 7 + 1 + rank).float()
        for hosts in (((0, 1), (2, 3, 4)), ((0,), (1, 2, 3, 4)), ((0, 4), (1,), (2, 3))):
            host = next(str(ranks) for ranks in hosts if rank in ranks)
            exact = by_hosts(Many(9001))
            assert torch.allclose(step(exact, x), mean_of(x), rtol=1e-6)
            ours, theirs = steps(by_hosts(), number=2), steps(wrap(False), number=2)
            assert torch.allclose(agreed(ours), theirs, rtol=1e-5, atol=1e-6)
            for compression in ("Int8", "TopK:ratio=0.1"):
                ddp = by_hosts(Many(9001), compression)
                said = sum(step(ddp, x) for _ in range(5))
                kept = lost(ddp, hosts)
                assert kept.any() and torch.allclose(said + kept[:9001], 5 * mean_of(x), rtol=1e-4), compression
        # Two groups of the job's ranks, one rank in neither: who is in one makes its sub-groups alone.
        groups = [dist.new_group([0, 1, 2]), dist.new_group([3, 4])]
        host = f"host-{rank % 2}"
        if rank < 3:
            ddp = DistributedDataParallel(Many(9001), process_group=groups[0])
            sums = paceline.comm.ddp_hook(ddp, compression="Int8", host=host)
            assert isinstance(sums, _hierarchy.Hierarchy) and sums.shape() == "2,1"
            for number in range(4):
                ddp.zero_grad()
                ddp(x).backward()
                mine = ddp.module.weight.grad.clone()
                everyone = [torch.empty_like(mine) for _ in range(3)]
                dist.all_gather(everyone, mine, group=groups[0])
                assert all(torch.equal(mine, other) for other in everyone)
                assert torch.allclose(mine, x - rank + 1, rtol=1e-5 if number < 2 else 2e-2)
"""
        + END,
        ranks=5,
    )
    assert run.code == 0, run.output


def test_the_quicker_way_is_taken_by_all_ranks(train_by_fork: Train) -> None:
    """By a clock that goes on within a sum, as long as that is said to take: whoever came early has waited in it."""
    run = train_by_fork(
        BEGIN
        + """
        from datetime import timedelta
        from paceline.comm import _measured
        from paceline.comm._hierarchy import Hierarchy
        from paceline.comm._layout import Layout
        from paceline.comm._meeting import Members
        clock, went = [0.0], []
        _measured._mark = lambda device: clock[0]
        def takes(name, seconds):
            way = getattr(Hierarchy, name)
            def taken(self, flat):
                went.append(name)
                clock[0] += seconds(flat.numel())
                way(self, flat)
            setattr(Hierarchy, name, taken)
        sums = Hierarchy(Members(), Layout.of(["a", "a", "b", "b"]), torch.device("cpu"), timedelta(seconds=60), 4000, measured=True)
        sums.prove(False)
        # Rank 2 comes last where it goes by hosts: what others measure says nothing. Above 5000 values that takes longer.
        takes("_sum", lambda count: (0.001 if rank == 2 else 0.009) * count / 3000)
        takes("_sum_in_group", lambda count: 0.002)
        for count, chosen in ((3000, "_sum"), (9000, "_sum_in_group")):
            for number in range(16):
                x = (torch.arange(count) % 7).float() + rank
                assert torch.equal(sums.allreduce_start(x).wait(), 4 * (torch.arange(count) % 7) + 6.0)
            first, rest = went[:10], went[10:]
            assert first == ["_sum", "_sum_in_group"] * 5 and rest == [chosen] * 6, went
            del went[:]
        sums.allreduce_start(torch.ones(999)).wait()
        assert went == ["_sum_in_group"], "as small as it is"
        told = "# over PyTorch's groups of gloo, measured: 11 KiB by hosts (1.00 ms against 2.00), 35 KiB flat (2.00 ms against 3.00)"
        assert told in sums.plan(), sums.plan()
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_on_a_device_streams_wait_and_not_the_host(train_by_fork: Train) -> None:
    """Streams that only note what is asked of them, in CUDA's place."""
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + """
        import contextlib
        log = []
        class Stream:
            def __init__(self, name):
                self.name = name
            def wait_stream(self, other):
                log.append(f"{self.name} waits for {other.name}")
            def record_event(self):
                log.append(f"{self.name} records")
                return self.name
            def wait_event(self, event):
                log.append(f"{self.name} waits for an event of {event}")
        current, side = [Stream("current")], Stream("side")
        @contextlib.contextmanager
        def on(stream):
            current.append(stream)
            yield
            current.pop()
        def noted(name):
            call = getattr(dist, name)
            def collective(*args, **options):
                log.append(f"{name} on {current[-1].name}")
                return call(*args, **options)
            return collective
        torch.cuda.current_stream, torch.cuda.stream = lambda device=None: current[-1], on
        torch.Tensor.record_stream = lambda tensor, stream: log.append(f"memory is held for {stream.name}")
        for name in ("reduce_scatter_single", "all_reduce", "all_gather_single"):
            setattr(dist, name, noted(name))
        _hierarchy._stream_of = lambda device: side
        ddp = by_hosts()
        steps(ddp, number=2)
        del log[:]
        steps(ddp, number=1)
        bucket = ["side waits for current", "reduce_scatter_single on side", "all_reduce on side", "all_gather_single on side",
                  "side records", "memory is held for side"]
        begun = log.index("current waits for an event of side")
        buckets = begun // len(bucket)
        assert buckets > 3 and log == bucket * buckets + ["current waits for an event of side"] * buckets, log
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_where_there_is_no_way_by_hosts(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + MODELS
        + FORCED
        + """
        def refused(said, names=None, group=None, **options):
            ddp = DistributedDataParallel(small(), process_group=group)
            try:
                paceline.comm.ddp_hook(ddp, host=(names or ["a", "a", "b", "b"])[rank], **options)
            except ValueError as error:
                assert said in str(error), error
            else:
                raise AssertionError(said)
        refused("one host, with no wire", ["a"] * 4)
        refused("one rank on every host", ["a", "b", "c", "d"])
        refused("another on some rank", compression="FP16" if rank else "BF16")
        refused("plan is 'algorithm=flat'" if rank == 2 else "rank 2: plan is", plan="algorithm=flat" if rank == 2 else "")
        _hierarchy.told = lambda how, device: f"{how} on GPU {'AB'[rank // 2]}"
        refused("PowerSGD:rank=1,start=1000 on GPU A here and another on some rank" if rank < 2 else "on GPU B here", compression="PowerSGD")
        # A job whose groups are split off a connected one, and a PyTorch whose sub-groups all ranks make.
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        from paceline.comm._meeting import Members
        members, module = Members(pairs[rank // 2]), dist.distributed_c10d
        whole, module._get_default_group = module._get_default_group, lambda: type("Bound", (), {"bound_device_id": 0, "size": lambda: 4})
        assert "init_process_group was given a device_id" in _hierarchy.why_not_group(members)
        module._get_default_group = whole
        assert _hierarchy.why_not_group(members) == ""
        dist.new_group = lambda ranks: None
        refused("some of the job's ranks", group=pairs[rank // 2])
"""
        + END,
        ranks=4,
    )
    assert run.code == 0, run.output


def test_a_job_gets_it_where_it_asks(train_by_fork: Train) -> None:
    run = train_by_fork(
        BEGIN
        + MODELS
        + """
        from paceline.comm import _hierarchy, _patch
        _hierarchy.carries = lambda model: True
        _patch.LEAST_BYTES = 20000  # some of the buckets are smaller
        def told(hosts, **environment):
            for name in ("PACELINE_COMMUNICATION", "PACELINE_NUMERICS", "PACELINE_COMMUNICATION_COMPRESSION",
                         "AIAK_HIERARCHICAL_ALLREDUCE", "AIAK_FP16_COMPRESSION"):
                os.environ.pop(name, None)
            os.environ.update(environment, NCCL_HOSTID=f"host-{rank % hosts}")
            _patch.uninstall()
            _patch.install()
            ddp = DistributedDataParallel(Several(), bucket_cap_mb=0.04)
            *_, line = [line for line in paceline.explain().splitlines() if " of Several: " in line]
            return ddp, line
        _patch.uninstall()
        plain = steps(DistributedDataParallel(Several(), bucket_cap_mb=0.04))
        by_name, auto = {"AIAK_HIERARCHICAL_ALLREDUCE": "1"}, {"PACELINE_COMMUNICATION": "Auto"}
        ddp, line = told(3, **by_name)
        assert "6 ranks, class Reordered, algorithm=hierarchical hosts=2,2,2" in line, line
        ours = agreed(steps(ddp))
        assert torch.allclose(ours, plain, rtol=1e-5, atol=1e-6)
        for hosts, asked, said in (
            (3, auto, "nobody has asked for the way by hosts"),
            (3, auto if rank == 1 else {**auto, **by_name}, "nobody has asked for the way by hosts"),
            (1, by_name, "one host, with no wire to spare"),
            (6, by_name, "one rank on every host"),
        ):
            ddp, line = told(hosts, **asked)
            assert f"by PyTorch ({said}" in line, line
            assert torch.equal(agreed(steps(ddp)), plain), "it is PyTorch's"
        class Registers(DistributedDataParallel):
            def register_comm_hook(self, state, hook):
                super().register_comm_hook(state, hook)
        kept = (Registers if rank == 4 else DistributedDataParallel)(small())
        print(*(line for line in paceline.explain().splitlines() if " of Sequential: " in line))
        lossy = {"PACELINE_NUMERICS": "Lossy", "PACELINE_COMMUNICATION_COMPRESSION": "FP16"}
        for asked in ({"AIAK_FP16_COMPRESSION": "1"}, {**auto, **lossy}):
            ddp, line = told(2, **asked)
            assert "class Lossy, compression FP16:start=2, algorithm=hierarchical hosts=3,3" in line, line
            ours = agreed(steps(ddp))
            assert torch.allclose(ours, plain, rtol=1e-2, atol=1e-3) and not torch.equal(ours, plain)
        ddp, line = told(2, **auto, **{**lossy, "PACELINE_COMMUNICATION_COMPRESSION": "Int8"})
        assert "compression Int8:start=2, algorithm=hierarchical hosts=3,3" in line and "codes by PyTorch's operators" in line, line
        ddp, line = told(2, **auto, **{**lossy, "PACELINE_COMMUNICATION_COMPRESSION": "Int8" if rank else "FP16"})
        assert "by PyTorch (nobody has asked" in line or "class Reordered" in line, line
"""
        + END,
        ranks=6,
        PACELINE_COMMUNICATION="Auto",
    )
    assert run.code == 0, run.output
    assert run.output.count("by PyTorch (another rank cannot)") == 5, run.output
    assert run.output.count("by PyTorch (a subclass that registers hooks in its own way)") == 1, run.output
    assert run.output.count(" here and another on some rank") == 6, run.output


def test_hosts_are_found_by_their_names(train_by_fork: Train) -> None:
    run = train_by_fork(
        """
        from paceline.comm._layout import Layout, own_host
        assert own_host() == own_host() and "/net:[" in own_host()
        os.environ["NCCL_HOSTID"] = "mine"
        assert own_host() == "mine"
        layout = Layout.of(["b", "a", "b", "a", "c", "c"])
        assert layout.hosts == ((0, 2), (1, 3), (4, 5)) and layout.lanes == ((0, 1, 4), (2, 3, 5)) and str(layout) == "2,2,2"
"""
    )
    assert run.code == 0, run.output


def test_the_gpus_check_runs_here_over_gloo(runtime: Path) -> None:
    """What tests/gpu/run does with NCCL: its program, but for the batch norms and the device."""
    answer = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/comm_check.py", "cpu"],
        env={**os.environ, "PYTHONPATH": str(runtime / "python"), "PACELINE_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
