# SPDX-License-Identifier: Apache-2.0
"""Gradients by way of hosts over PyTorch's own process groups. They are for GPUs and NCCL; here groups
of gloo and names of hosts take their place. On a GPU: tests/gpu/comm_check.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from comm_programs import MODELS, passes
from programs import ROOT, Train

NEW = int(torch.__version__.split(".")[0]) >= 2
pytestmark = pytest.mark.skipif(not NEW, reason="gloo of PyTorch 1.13 has no reduce_scatter_tensor")

# Makes _hierarchy take models on the CPU, which is all that differs from a GPU.
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
    """Integers have the same sum in every order; other types are compared with torch's tolerance. Some
    buckets have sizes that the ranks do not divide.
    """
    run = passes(
        train_by_fork,
        MODELS
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
        # Two models that share groups, and join().
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
""",
        ranks=4,
    )
    assert (
        run.output.count(
            "4 ranks, class Reordered, algorithm=hierarchical hosts=2,2 # over PyTorch's groups of"
            " gloo"
        )
        == 4
    ), run.output


def test_three_hosts_with_ranks_in_turn(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
        + FORCED
        + """
        host = f"host-{rank % 3}"
        ours, theirs = steps(by_hosts(), number=2), steps(wrap(False), number=2)
        agreed(ours)
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (ours - theirs).abs().max()
""",
        ranks=6,
    )


@pytest.mark.parametrize("hosts", ["aabb", "abab", "abbb", "aaabbb", "aabbbb", "abbbbb"])
def test_sums_of_any_size_are_those_of_the_group(train_by_fork: Train, hosts: str) -> None:
    """Integers, whose sums have the same bits in any order, up to the borders of shards."""
    passes(
        train_by_fork,
        f"""
        from paceline.comm._hierarchy import Hierarchy
        from paceline.comm._layout import Layout
        from paceline.comm._members import Members
        layout = Layout.of(list("{hosts}"))
        sums = Hierarchy(Members(), layout, torch.device("cpu"), timedelta(seconds=60))
        sums.prove(False)
        shards, generator = len(layout.channels), torch.Generator().manual_seed(7)
        borders = [shards * n + more for n in (1, 4, 1000) for more in (-1, 0, 1)]
        sizes = [0, 1, 2, 3, *borders, *torch.randint(5, 70000, (12,), generator=generator).tolist()]
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
            for count in sizes:
                own = torch.randint(-9, 10, (count,), generator=torch.Generator().manual_seed(rank)).to(dtype)
                ours, theirs = own.clone(), own.clone()
                work = sums.all_reduce(ours, async_op=True)
                assert work.wait() and work.result()[0] is ours
                dist.all_reduce(theirs)
                assert torch.equal(ours, theirs), (dtype, count)
""",
        ranks=len(hosts),
    )


def test_on_a_device_streams_wait_and_not_the_host(train_by_fork: Train) -> None:
    """Objects that only record calls take the place of CUDA streams."""
    passes(
        train_by_fork,
        MODELS
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
""",
        ranks=4,
    )


def test_where_there_is_no_way_by_hosts(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
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
        refused("one host, so there", ["a"] * 4)
        refused("one rank on every host", ["a", "b", "c", "d"])
        refused("another on some rank", compression="FP16" if rank else "BF16")
        refused("compression is 'Int9'" if rank == 1 else "rank 1: compression is 'Int9'", compression="Int9" if rank == 1 else "FP16")
        if rank == 3:
            os.environ["PACELINE_NUMERICS"] = "Bitwise"
        refused(("" if rank == 3 else "rank 3: ") + "compression is of class Lossy, and the job's", compression="FP16")
        os.environ.pop("PACELINE_NUMERICS", None)
        refused("plan is 'algorithm=flat'" if rank == 2 else "rank 2: plan is", plan="algorithm=flat" if rank == 2 else "")
        _hierarchy.told = lambda how, device: f"{how} on GPU {'AB'[rank // 2]}"
        refused("PowerSGD:rank=1,start=1000 on GPU A here and another on some rank" if rank < 2 else "on GPU B here", compression="PowerSGD")
        # A group that is split off a connected one, and a PyTorch in which all ranks make sub-groups.
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        from paceline.comm._members import Members
        members, module = Members(pairs[rank // 2]), dist.distributed_c10d
        whole, module._get_default_group = module._get_default_group, lambda: type("Bound", (), {"bound_device_id": 0, "size": lambda: 4})
        assert "init_process_group was given a device_id" in _hierarchy.why_not_group(members)
        module._get_default_group = whole
        assert _hierarchy.why_not_group(members) == ""
        dist.new_group = lambda ranks: None
        refused("some of the job's ranks", group=pairs[rank // 2])
""",
        ranks=4,
    )


def test_a_job_gets_it_where_it_asks(train_by_fork: Train) -> None:
    run = passes(
        train_by_fork,
        MODELS
        + """
        from paceline.comm import _hierarchy, _measured, _patch
        _hierarchy.carries = lambda model: True
        _patch.LEAST_BYTES = 20000  # some of the buckets are smaller
        _measured.MARGIN = 0.0  # as if the way by hosts were measured to be quicker
        _measured.BUDGET_S = 1e9  # on a busy machine, too
        _patch.why_not_tcp = lambda: "RDMA"
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
            (3, auto, "NCCL seems to reach other hosts by RDMA"),
            (3, auto if rank == 1 else {**auto, **by_name}, "NCCL seems to reach other hosts by RDMA"),
            (1, by_name, "one host, so there is no leg between hosts"),
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
        assert "compression Int8:start=2, algorithm=hierarchical hosts=3,3" in line, line
        ddp, line = told(2, **auto, **{**lossy, "PACELINE_COMMUNICATION_COMPRESSION": "Int8" if rank else "FP16"})
        assert "class Reordered" in line, line
""",
        ranks=6,
        PACELINE_COMMUNICATION="Auto",
    )
    assert run.output.count(" cannot: a subclass that registers hooks in its own way)") == 5, (
        run.output
    )
    assert run.output.count("by PyTorch (a subclass that registers hooks in its own way)") == 1, (
        run.output
    )
    assert run.output.count(" here and another on some rank") == 6, run.output


def test_hosts_are_found_by_their_names(train_by_fork: Train) -> None:
    run = train_by_fork("""
        from paceline.comm._layout import Layout, own_host
        assert own_host() == own_host() and "/net:[" in own_host()
        os.environ["NCCL_HOSTID"] = "mine"
        assert own_host() == "mine"
        layout = Layout.of(["b", "a", "b", "a", "c", "c"])
        assert layout.hosts == ((0, 2), (1, 3), (4, 5)) and layout.channels == ((0, 1, 4), (2, 3, 5)) and str(layout) == "2,2,2"
""")
    assert run.code == 0, run.output


def test_the_gpus_check_runs_here_over_gloo(runtime: Path) -> None:
    """Runs the program of tests/gpu/run over gloo, without batch norms and device."""
    answer = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/comm_check.py", "cpu"],
        env={**os.environ, "PYTHONPATH": str(runtime / "python"), "PACELINE_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
