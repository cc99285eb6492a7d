# SPDX-License-Identifier: Apache-2.0
"""For which sizes sums go by way of hosts: the choice as a table, its measurement by a pretended
clock, and jobs that ask for nothing but communication. Groups of gloo take the place of NCCL's.
"""

from __future__ import annotations

import pytest
from comm_programs import MODELS, passes
from programs import Train
from test_comm_hierarchy import pytestmark as new_pytorch


def test_the_choice_as_a_table(train_by_fork: Train) -> None:
    run = train_by_fork("""
        from paceline.comm._measured import Choice, Row, sizes_to_measure
        M = 1 << 20
        def choice(**rows):
            return Choice(tuple(Row(int(size[1:]) * M, 1.0, reached) for size, reached in rows.items()))
        for rows, size, wanted in (
            (dict(), 25 * M, False),                       # nothing was measured
            (dict(_1=1.05), M, True),                      # the margin itself
            (dict(_1=1.049), M, False),                    # noise
            (dict(_1=1.0, _25=1.5), M, False),
            (dict(_1=1.0, _25=1.5), 25 * M, True),
            (dict(_1=1.0, _25=1.5), 18 * M, True),         # near 25
            (dict(_1=1.0, _25=1.5), 17 * M, False),        # between one that gains and one that does not
            (dict(_1=1.2, _25=1.5), 5 * M, True),          # between two that gain
            (dict(_1=1.5, _25=0.9), 5 * M, False),
            (dict(_1=1.5, _25=0.9), 200 * M, False),       # as the largest
            (dict(_1=1.0, _25=1.5), 200 * M, True),
            (dict(_8=1.5, _25=1.5), 6 * M, True),          # near 8
            (dict(_8=1.5, _25=1.5), 5 * M, False),         # smaller than all that were measured
            (dict(_8=1.5, _9=0.5), 8 * M, True),           # the nearest of two decides
            (dict(_8=1.5, _9=0.5), 9 * M, False),
        ):
            assert choice(**rows).by_hosts(size) == wanted, (rows, size / M)
        told = str(Choice((Row(M, 0.931, 0.9), Row(25 * M, 1.417, 1.3))))
        assert told == "1.0 MiB flat (0.93), 25.0 MiB by hosts (1.42)", told
        for buckets, wanted in (
            ([], []),
            ([M - 1], []),
            ([M], [M]),
            ([M, 1.3 * M], [M]),
            ([25 * M], [M, 25 * M]),
            ([25 * M, 26 * M, 30 * M, 1000], [M, 30 * M]),
            ([300 * M, 25 * M], [M, 25 * M, 64 * M]),      # no array is larger than 64 MiB
            ([2 * M, 4 * M, 8 * M, 16 * M, 32 * M], [M, 2 * M, 8 * M, 32 * M]),
        ):
            found = sizes_to_measure(list(map(int, buckets)), M)
            assert found == wanted, (buckets, [size / M for size in found])
""")
    assert run.code == 0, run.output


def test_sizes_of_buckets_are_about_those_of_the_reducer(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        """
        from paceline.comm._model import bucket_sizes
        def seen_by_a_hook(ddp, number):
            sizes = []
            def note(state, bucket):
                sizes.append(bucket.buffer().numel() * bucket.buffer().element_size())
                future = torch.futures.Future()
                future.set_result(bucket.buffer())
                return future
            ddp.register_comm_hook(None, note)
            for _ in range(2):  # buckets are rebuilt after the first backward
                del sizes[:]
                ddp(torch.ones(2, number)).sum().backward()
            return sizes
        for number, layers, options in ((256, 40, {"bucket_cap_mb": 2}), (256, 40, {}), (900, 3, {}), (8, 2, {})):
            model = nn.Sequential(*[nn.Linear(number, number) for _ in range(layers)])
            model[0].bias.requires_grad_(False)
            ddp = DistributedDataParallel(model, **options)
            ours, real = bucket_sizes(ddp), seen_by_a_hook(ddp, number)
            assert sum(ours) == sum(real) == sum(4 * p.numel() for p in model.parameters() if p.requires_grad)
            assert len(ours) == len(real) and all(abs(a - b) <= 4 * number * (number + 1) for a, b in zip(ours, real)), (ours, real)
""",
        ranks=2,
    )


def test_rdma_is_seen_where_nccl_would_use_it(train_by_fork: Train) -> None:
    run = train_by_fork("""
        import tempfile
        from pathlib import Path
        from paceline.comm._layout import why_not_tcp
        def machine(state=None, device=True, maps=""):
            root = Path(tempfile.mkdtemp())
            (root / "proc/self").mkdir(parents=True)
            (root / "proc/self/maps").write_text("7f0-7f1 r-xp 00000000 08:01 12 /usr/lib/libc.so.6\\n" + maps)
            if state is not None:
                port = root / "sys/class/infiniband/mlx5_0/ports/1"
                port.mkdir(parents=True)
                (port / "state").write_text(state)
            if device:
                (root / "dev/infiniband").mkdir(parents=True)
                (root / "dev/infiniband/uverbs0").touch()
            return root
        ofi = "7f2-7f3 r-xp 00000000 08:01 13 /opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so\\n"
        active, down = "4: ACTIVE\\n", "1: DOWN\\n"
        for root, environment, wanted in (
            (machine(), {}, ""),
            (machine(down), {}, ""),
            (machine(active), {}, "RDMA device mlx5_0"),
            (machine(active, device=False), {}, ""),  # a port of the host that this container cannot open
            (machine(active), {"NCCL_IB_DISABLE": "1"}, ""),
            (machine(active), {"NCCL_IB_DISABLE": "0"}, "RDMA device mlx5_0"),
            (machine(active), {"NCCL_NET": "Socket"}, ""),
            (machine(), {"NCCL_NET": "IB"}, "NCCL_NET=IB"),
            (machine(), {"NCCL_NET_PLUGIN": "aws-ofi"}, "NCCL_NET_PLUGIN=aws-ofi"),
            (machine(), {"NCCL_NET_PLUGIN": "none"}, ""),
            (machine(maps=ofi), {"NCCL_IB_DISABLE": "1"}, "NCCL's network plugin libnccl-net-ofi.so"),
            (machine(maps=ofi), {"NCCL_NET": "socket"}, ""),
            (Path("/nowhere"), {}, ""),
        ):
            for name in ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"):
                os.environ.pop(name, None)
            os.environ.update(environment)
            assert why_not_tcp(root) == wanted, (root, environment, why_not_tcp(root))
""")
    assert run.code == 0, run.output


# A clock that advances in each sum by the time that it is said to take on this rank.
CLOCK = """
        from datetime import timedelta
        from paceline.comm import _measured
        from paceline.comm._hierarchy import Hierarchy
        from paceline.comm._layout import Layout
        from paceline.comm._members import Members
        clock, went = [0.0], []
        _measured._mark = lambda device: clock[0]
        _measured.time = type("Clock", (), {"perf_counter": staticmethod(lambda: clock[0])})
        def takes(name, seconds):
            way = getattr(Hierarchy, name)
            def taken(self, flat, *more):
                went.append(name)
                clock[0] += seconds(flat.numel())
                way(self, flat, *more)
            setattr(Hierarchy, name, taken)
        def measured(sizes, least=4000):
            sums = Hierarchy(Members(), Layout.of(["a", "a", "b", "b"]), torch.device("cpu"), timedelta(seconds=60), least, sizes)
            sums.prove(False)
            clock[0] = 0.0
            del went[:]
            choice = sums.measure()
            agreed(torch.tensor([clock[0] >= 0, *(row.median for row in choice.rows), *(row.reached for row in choice.rows)]))
            return sums, choice
"""


@new_pytorch
def test_all_ranks_take_what_was_clearly_quicker(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
        + CLOCK
        + """
        # By way of hosts, rank 2 is the slowest, so its times count. Large arrays gain, small ones do not.
        takes("_sum", lambda count: (0.005 if rank == 2 else 0.001) * (2 if count < 9000 else 1))
        takes("_sum_in_group", lambda count: 0.0075)
        sums, choice = measured([12000, 40000])
        assert went[:4] == ["_sum", "_sum_in_group", "_sum_in_group", "_sum"], went  # they take turns to be first
        assert went.count("_sum") == went.count("_sum_in_group") == 2 * 13
        assert "measured as times as quick as flat: 0.0 MiB flat (0.75), 0.0 MiB by hosts (1.50)" in sums.plan(), sums.plan()
        for count, way in ((999, "_sum_in_group"), (3000, "_sum_in_group"), (9900, "_sum"), (50000, "_sum")):
            del went[:]
            x = (torch.arange(count) % 7).float() + rank
            assert sums.all_reduce(x, async_op=True).wait() and torch.equal(x, 4 * (torch.arange(count) % 7) + 6.0)
            assert went == [way], (count, went)
        # A model of the same group needs no measurement.
        again = Hierarchy(Members(), Layout.of(["a", "a", "b", "b"]), torch.device("cpu"), timedelta(seconds=60), 4000, choice=choice)
        assert again.plan() == sums.plan()
        groups = len(dist.distributed_c10d._world.pg_map)
        again.close()
        assert len(dist.distributed_c10d._world.pg_map) == groups, "sums uses them"
        sums.close()
        assert len(dist.distributed_c10d._world.pg_map) == groups - 2, "they are given back"
        x = torch.ones(5)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full((5,), 4.0))
""",
        ranks=4,
    )


@new_pytorch
@pytest.mark.parametrize(
    ("link", "rows"),
    [
        (1e-7, [4000, 40000, 400000]),  # seconds a byte: 400 kB in 40 ms
        (2e-6, [4000, 40000]),  # 400 kB would take 0.8 s
        (2e-5, [4000]),  # 4 kB take 80 ms
        (2e-4, []),  # 4 kB take 0.8 s
    ],
)
def test_measuring_ends_within_its_budget(
    train_by_fork: Train, link: float, rows: list[int]
) -> None:
    """A budget of 1.5 s, and one round more where the link is slower than any."""
    passes(
        train_by_fork,
        MODELS
        + CLOCK
        + f"""
        link, rows = {link}, {rows}
        takes("_sum", lambda count: 4 * count * link / (1 + rank))
        takes("_sum_in_group", lambda count: 4 * count * link / (1 + rank))
        sums, choice = measured([4000, 40000, 400000])
        assert [row.size for row in choice.rows] == rows, choice.rows
        assert all(abs(row.reached - 1) < 1e-6 and not row.gains for row in choice.rows), choice.rows
        assert rank > 0 or clock[0] <= max(1.5, 2 * 4000 * link + 1e-9), clock
""",
        ranks=4,
    )


@new_pytorch
def test_a_noisy_gain_is_none(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
        + CLOCK
        + """
        number = [0]
        def noisy(count):
            number[0] += 1
            return 0.02 if number[0] % 3 == 0 else 0.005
        takes("_sum", noisy)
        takes("_sum_in_group", lambda count: 0.01)
        sums, choice = measured([4000])
        (row,) = choice.rows
        assert abs(row.median - 2) < 1e-6 and abs(row.reached - 0.5) < 1e-6 and not choice.by_hosts(4000), row
""",
        ranks=4,
    )


# What a job that asks for communication alone gets, with the hosts that NCCL_HOSTID names.
JOB = """
        from paceline.comm import _hierarchy, _layout, _measured, _patch
        _hierarchy.carries = lambda model: True
        _patch.why_not_tcp = lambda: ""
        _patch.LEAST_BYTES = 20000
        def told(hosts, margin=0.0, **environment):
            _measured.MARGIN, _measured.BUDGET_S = margin, 1e9  # on a busy machine, too
            os.environ.pop("AIAK_HIERARCHICAL_ALLREDUCE", None)
            os.environ.update(environment, PACELINE_COMMUNICATION="Auto", NCCL_HOSTID=hosts[rank])
            _patch.uninstall()
            _patch.install()
            ddp = DistributedDataParallel(Several(), bucket_cap_mb=0.04)
            *_, line = [line for line in paceline.explain().splitlines() if " of Several: " in line]
            return ddp, line
        _patch.uninstall()
        plain = steps(DistributedDataParallel(Several(), bucket_cap_mb=0.04))
        def is_pytorchs(ddp, line, said):
            assert f"by PyTorch ({said}" in line, line
            assert torch.equal(agreed(steps(ddp)), plain)
        groups = lambda: len(dist.distributed_c10d._world.pg_map)
"""


@new_pytorch
@pytest.mark.parametrize(
    ("hosts", "shape"), [("aabb", "2,2"), ("aabbbb", "2,4"), ("abbbbb", "1,5")]
)
def test_a_job_with_auto_alone_gets_what_was_measured(
    train_by_fork: Train, hosts: str, shape: str
) -> None:
    passes(
        train_by_fork,
        MODELS
        + JOB
        + f"""
        hosts, shape = "{hosts}", "{shape}"
        before = groups()
        ddp, line = told(hosts, margin=1e9)
        is_pytorchs(ddp, line, "by way of hosts is not clearly quicker; measured as times as quick as flat: 0.0 MiB flat (")
        assert groups() == before, "the sub-groups are given back"
        ddp, line = told(hosts)
        assert f"class Reordered, algorithm=hierarchical hosts={{shape}} # over PyTorch's groups of gloo, measured as times as quick as flat: 0.0 MiB by hosts (" in line, line
        assert torch.allclose(agreed(steps(ddp)), plain, rtol=1e-5, atol=1e-6)
        # The next models of the group are not measured again.
        _measured.Meter.run = None
        other = DistributedDataParallel(Several(), bucket_cap_mb=0.04)
        *_, again = [one for one in paceline.explain().splitlines() if " of Several: " in one]
        assert again.partition(": ")[2].partition(";")[0] == line.partition(": ")[2].partition(";")[0], (again, line)
        assert torch.allclose(agreed(steps(other)), plain, rtol=1e-5, atol=1e-6)
""",
        ranks=len(hosts),
    )


@new_pytorch
def test_a_job_that_is_left_alone_is_told_why(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
        + JOB
        + """
        before = groups()
        _patch.why_not_tcp = lambda: "RDMA device mlx5_0" if rank == 3 else ""
        is_pytorchs(*told("aabb"), "NCCL seems to reach other hosts by RDMA device mlx5_0, and not by TCP")
        ddp, line = told("aabb", AIAK_HIERARCHICAL_ALLREDUCE="1")
        assert "algorithm=hierarchical hosts=2,2" in line, "asked for by name, it is measured over RDMA too"
        _patch.why_not_tcp = lambda: ""
        after = groups()
        is_pytorchs(*told("aaaa"), "one host, so there is no leg between hosts")
        is_pytorchs(*told("abcd"), "one rank on every host")
        _patch.LEAST_BYTES = 1 << 20
        is_pytorchs(*told("aabb"), "no bucket has 1 MiB, below which NCCL alone is quicker")
        assert groups() == after == before + 2, "nothing was made for these"
""",
        ranks=4,
    )


@new_pytorch
@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("_patch.why_not_tcp = fail", "OSError: out of luck"),
        ("_patch.bucket_sizes = fail", "OSError: out of luck"),
        ("_hierarchy.Meter = fail", "out of luck"),
        ("_hierarchy.Hierarchy._look_at = fail", "out of luck"),
        ("_measured._seconds = fail", "out of luck"),
    ],
)
def test_a_rank_that_fails_leaves_all_to_pytorch(
    train_by_fork: Train, fails: str, said: str
) -> None:
    """The first rank fails, since it alone counts buckets."""
    run = passes(
        train_by_fork,
        MODELS
        + JOB
        + f"""
        def fail(*args, **options):
            raise OSError("out of luck")
        if rank == 0:
            {fails}
        ddp, line = told("aabb")
        is_pytorchs(ddp, line, "")
        print("why:", line)
""",
        ranks=4,
    )
    whys = [line for line in run.output.splitlines() if line.startswith("why:")]
    assert len(whys) == 4 and sum(said in why for why in whys) >= 1, whys
