# SPDX-License-Identifier: Apache-2.0
"""paceline.comm: collectives on tensors, and DistributedDataParallel's gradients over them by a
line in the program.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from programs import Train


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one program has measured, the next one of as many ranks need not."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def train(train_by_fork: Train, cache: Path) -> Train:
    return functools.partial(train_by_fork, XDG_CACHE_HOME=str(cache))


BEGIN = """
        import hashlib, signal
        import paceline.comm
        from datetime import timedelta
        from torch.nn.parallel import DistributedDataParallel
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
"""
END = """
        dist.destroy_process_group()
"""

# Two runs of the same training, one of them with the hook: the gradients of every step.
MODELS = """
        class Several(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.first, self.last = nn.Linear(4, 64), nn.Linear(64, 1)
                self.deep = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])
                self.unused = nn.Linear(64, 64)
            def forward(self, x, use=False):
                x = self.first(x)
                for layer in self.deep:
                    x = torch.relu(layer(x))
                return self.last(self.unused(x) if use else x)

        def wrap(hook, model=None, **options):
            # Buckets of 40 kB: seven of them, so that some are on their way while others are computed.
            ddp = DistributedDataParallel(model or Several(), bucket_cap_mb=0.04, **options)
            if hook:
                paceline.comm.ddp_hook(ddp)
            return ddp

        def steps(ddp, number=3, to_none=True, use=True, body=None):
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
            seen = []
            for step in range(number):
                torch.manual_seed(100 * step + rank)
                optimizer.zero_grad(set_to_none=to_none)
                (body or (lambda ddp, step: ddp(torch.randn(8, 4), use).pow(2).mean().backward()))(ddp, step)
                seen += [p.grad.clone().flatten() for p in ddp.parameters() if p.grad is not None]
                optimizer.step()
            return torch.cat(seen)

        def agreed(what):
            mine = hashlib.sha256(what.numpy().tobytes()).hexdigest()
            all_of_them = [None] * ranks
            dist.all_gather_object(all_of_them, mine)
            assert len(set(all_of_them)) == 1, "ranks differ"
            return what
"""


def test_collectives_on_tensors(train: Train) -> None:
    run = train(
        BEGIN
        + """
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
            with paceline.comm.Communicator() as comm:
                x = torch.arange(1001).remainder(7).to(dtype) + rank
                assert comm.all_reduce(x) is x
                assert torch.equal(x, (torch.arange(1001).remainder(7) * ranks + 3).to(dtype)), dtype
                started = [comm.all_reduce(torch.full((n,), rank + 1, dtype=dtype), async_op=True) for n in (5, 0, 70000)]
                # After what was started: the same order on all ranks.
                comm.barrier()
                for work in reversed(started):
                    assert work.wait() and work.is_completed() and (work.result()[0] == 6).all() and work.wait()
                assert torch.equal(comm.all_gather(torch.empty(6, dtype=dtype), torch.full((2,), rank, dtype=dtype)),
                                   torch.tensor([0, 0, 1, 1, 2, 2], dtype=dtype))
                mine = comm.reduce_scatter(torch.empty(2, dtype=dtype), torch.arange(6).to(dtype))
                assert torch.equal(mine, (torch.arange(6)[2 * rank:2 * rank + 2] * 3).to(dtype))
                assert (comm.broadcast(torch.full((3,), rank, dtype=dtype), src=2) == 2).all()
                reduced = comm.reduce(torch.full((3,), rank + 1, dtype=dtype), dst=1)
                assert (reduced == (6 if rank == 1 else rank + 1)).all()
                # To rank r, r + 1 elements; and to all as many.
                mine = torch.tensor([10 * rank + r for r in range(ranks) for _ in range(r + 1)], dtype=dtype)
                got = comm.all_to_all(torch.empty(3 * (rank + 1), dtype=dtype), mine, [rank + 1] * 3, [1, 2, 3])
                wanted = torch.tensor([10 * r + rank for r in range(ranks) for _ in range(rank + 1)], dtype=dtype)
                assert torch.equal(got, wanted), dtype
                assert torch.equal(comm.all_to_all(torch.empty(3, dtype=dtype), torch.arange(3).to(dtype) + 3 * rank),
                                   (torch.arange(3) * 3 + rank).to(dtype))
                here = comm.exchange(torch.empty(2, dtype=dtype), torch.full((2,), rank, dtype=dtype), (rank + 1) % 3, (rank + 2) % 3)
                assert (here == (rank + 2) % 3).all()
                indices, sums = comm.all_reduce_sparse(torch.tensor([9, rank, 9]), torch.full((3, 2, 1), rank + 1).to(dtype))
                assert indices.tolist() == [0, 1, 2, 9] and sums.flatten().tolist() == [1, 1, 2, 2, 3, 3, 12, 12]
        with paceline.comm.Communicator() as comm:
            if rank == 2:
                comm.send(torch.arange(5.0), dst=0)
            if rank == 0:
                assert torch.equal(comm.recv(torch.empty(5), src=2), torch.arange(5.0))
            none = comm.all_reduce_sparse(torch.empty(0, dtype=torch.int64), torch.empty(0, 4))
            assert none[0].shape == (0,) and none[1].shape == (0, 4)
        pair = dist.new_group([0, 2])
        if rank != 1:
            with paceline.comm.Communicator(pair) as both, paceline.comm.Communicator(pair, plan="algorithm=flat") as flat:
                assert (both.rank, both.ranks) == (rank // 2, 2)
                assert float(both.all_reduce(torch.ones(1))) == float(flat.all_reduce(torch.ones(1))) == 2
                assert "algorithm=hierarchical" in both.plan() and "algorithm=flat" in flat.plan()
                assert both.shape() == "2" and flat.tune() == "0:flat"
                choice = both.tune(budget=timedelta(milliseconds=20))
                assert f" choice={choice} " in both.plan() and both.tune(known=choice) == choice
                with paceline.comm.Communicator(pair, plan=both.plan()) as again:
                    assert again.plan() == both.plan()
        refused = paceline.comm.Communicator()
        dist.barrier()  # none is still in the making of its own
        for wrong, name in (
            (lambda: refused.all_reduce(torch.ones(2, 2).t()), "tensor must be contiguous"),
            (lambda: refused.all_reduce(torch.ones(2, dtype=torch.int8)), "torch.int8"),
            (lambda: refused.all_reduce(torch.ones(2, device="meta")), "tensor is on meta"),
            (lambda: refused.broadcast(torch.ones(2), src=3), "src is 3"),
            (lambda: refused.reduce(torch.ones(2), dst=-1), "dst is -1"),
            (lambda: refused.all_gather(torch.ones(5), torch.ones(2)), "output has 5 elements"),
            (lambda: refused.send(torch.ones(2), dst=rank), "dst is "),
            (lambda: refused.recv(torch.ones(2), src=-1), "src is -1"),
            (lambda: refused.all_to_all(torch.ones(4), torch.ones(4)), "a multiple of 3"),
            (lambda: refused.all_reduce_sparse(torch.tensor([1]), torch.ones(2, 2)), "a row for each of 1"),
            (lambda: paceline.comm.Communicator(plan="algorithm=star"), "algorithm=star"),
        ):
            try:
                wrong()
            except ValueError as error:
                assert name in str(error), error
            else:
                raise AssertionError(name)
        refused.close()
        # Wrong on one rank alone: the others need not wait for it.
        three, wide = torch.ones(3), torch.ones(9)
        calls = {
            "all_reduce: paceline.comm: tensor must be contiguous": lambda one, bad: one.all_reduce(torch.ones(2, 2).t() if bad else torch.ones(2, 2)),
            "reduce: paceline.comm: dst is 3": lambda one, bad: one.reduce(three, 3 if bad else 0),
            "broadcast: paceline.comm: tensor is of torch.int8": lambda one, bad: one.broadcast(three.to(torch.int8) if bad else three),
            "reduce_scatter: paceline.comm: input has 3 elements": lambda one, bad: one.reduce_scatter(torch.ones(3), three if bad else wide),
            "all_gather: paceline.comm: output has 3 elements": lambda one, bad: one.all_gather(torch.ones(3 if bad else 9), three),
            "all_to_all: paceline.comm: input has 2 elements": lambda one, bad: one.all_to_all(torch.ones(3), three[:2] if bad else three),
            "all_to_all: paceline.comm: input_split_sizes is [1, 1]": lambda one, bad: one.all_to_all(torch.ones(3), three, [1, 1, 1], [1, 1] if bad else [1, 1, 1]),
            "all_reduce_sparse: paceline.comm: values is of (2,)": lambda one, bad: one.all_reduce_sparse(torch.tensor([1, 2, 3]), three[:2] if bad else three[:, None]),
            "tune: 'int' object": lambda one, bad: one.tune(3 if bad else ""),
        }
        for words, call in calls.items():
            with paceline.comm.Communicator() as one:
                dist.barrier()
                try:
                    call(one, rank == 1)
                    one.barrier()  # who only sends, or has got what it needs, may be done before
                except (ValueError, AttributeError) as error:
                    assert rank == 1 and words.split(": ", 1)[1] in str(error), error
                except paceline.comm.CommError as error:
                    assert rank != 1 and error.rank == 1 and f"rank 1 gave up: {words}" in str(error), error
                else:
                    raise AssertionError(words)
        # What is one rank's own ends nothing.
        comm = paceline.comm.Communicator()
        for own in (lambda: comm.send(three, dst=rank), lambda: comm.all_reduce(wide.view(3, 3).t(), async_op=True)):
            try:
                own()
                raise AssertionError("not refused")
            except ValueError:
                pass
        comm.barrier()
        leaf = torch.ones(3, requires_grad=True)
        squared = leaf ** 2
        product = squared * squared
        comm.all_reduce(squared.detach())
        try:
            product.sum().backward()
            raise AssertionError("autograd did not see that its input was overwritten")
        except RuntimeError as error:
            assert "inplace" in str(error), error
        # A child has no part in it, and does not keep its connections open.
        sockets = lambda: sum("socket" in os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                              if os.path.exists(f"/proc/self/fd/{n}"))
        before = sockets()
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except paceline.comm.CommError:
                os._exit(0 if sockets() < before else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        comm.barrier()
        comm.close()
        try:
            comm.barrier()
        except paceline.comm.CommError as error:
            assert "closed" in str(error)
"""
        + END,
        ranks=3,
    )
    assert run.code == 0, run.output


def test_gradients_of_two_ranks_are_gloos_to_the_bit(train: Train) -> None:
    """Two numbers have one sum, and halves are exact: so all that a model may be is compared to the
    bit.
    """
    run = train(
        BEGIN
        + MODELS
        + """
        def accumulate(ddp, step):
            with ddp.no_sync():
                ddp(torch.randn(8, 4), True).sum().backward()
            ddp(torch.randn(8, 4), True).pow(2).sum().backward()
        def twice(ddp, step):
            (ddp(torch.randn(8, 4), True).sum() + ddp.module.last(torch.ones(64)).sum()).backward()
        for options, told in (
            ({}, {}),
            ({"gradient_as_bucket_view": True}, {}),
            ({"gradient_as_bucket_view": True}, {"to_none": False}),
            ({"find_unused_parameters": True}, {"use": False}),
            ({"static_graph": True}, {"use": False, "number": 4}),
            ({"static_graph": True, "gradient_as_bucket_view": True}, {}),
            ({}, {"body": accumulate}),
            ({"gradient_as_bucket_view": True}, {"body": accumulate, "to_none": False}),
        ):
            theirs = agreed(steps(wrap(False, **options), **told))
            ours = agreed(steps(wrap(True, **options), **told))
            assert torch.equal(theirs, ours), (options, told)

        # Two models in one backward, one of them of half the numbers; and a third of a group of its own.
        class Typed(nn.Module):
            def __init__(self, dtype):
                super().__init__()
                torch.manual_seed(4)
                self.weight = nn.Parameter(torch.randn(100, dtype=dtype))
            def forward(self, x):
                return (self.weight * x).abs()
        # PyTorch 1.13's gloo has no sums of bfloat16 and of complex numbers.
        for dtype in (torch.float64, torch.float16) + ((torch.bfloat16, torch.complex64) if torch.__version__ > "2" else ()):
            results = []
            for hook in (False, True):
                a, b = wrap(hook), wrap(hook, Typed(dtype))
                for step in range(3):
                    torch.manual_seed(rank + 10 * step)
                    (a(torch.randn(8, 4), True).sum() + b(torch.randn(100).to(dtype)).sum().double()).backward()
                results.append(torch.cat([torch.view_as_real(p.grad).flatten() if p.grad.is_complex() else p.grad.flatten().double()
                                          for m in (a, b) for p in m.parameters()]))
            assert torch.equal(*results), dtype

        # Sparse gradients, of rows that come more than once, over the communicator too; a reentrant checkpoint is a backward within backward.
        from torch.utils.checkpoint import checkpoint
        class Embeds(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                self.table, self.out = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1)
            def forward(self, x):
                return self.out(self.table(x))
        sparse, carried = [], []
        carries = paceline.comm.Communicator.all_reduce_sparse
        def counted(self, indices, values):
            carried.append(len(indices))
            return carries(self, indices, values)
        paceline.comm.Communicator.all_reduce_sparse = counted
        for hook in (False, True):
            ddp = wrap(hook, Embeds())
            for step in range(2):
                torch.manual_seed(10 * step + rank)
                ddp.zero_grad()
                (ddp(torch.tensor([rank, 3 + rank, 3, rank])) * torch.rand(4, 1)).sum().backward()
            sparse.append(ddp.module.table.weight.grad.to_dense())
        assert torch.equal(*sparse) and sparse[0].abs().sum() > 0 and carried == [2 + rank] * 2, carried
        class Checkpointed(Several):
            def forward(self, x, use=True):
                x = self.first(x)
                for layer in self.deep:
                    x = checkpoint(layer, x, **({"use_reentrant": True}))
                return self.last(self.unused(x))
        assert torch.equal(*[agreed(steps(wrap(hook, Checkpointed()))) for hook in (False, True)])

        # A second communicator, in a group that is gone before its model.
        group = dist.new_group([0, 1])
        late = wrap(True, process_group=group)
        steps(late)
        dist.destroy_process_group(group)
        lines = [line for line in paceline.explain().splitlines() if "DistributedDataParallel of Several" in line]
        print(sorted(set(line.partition("; gradients were waited for ")[0] for line in lines)))
        told = paceline.explain(as_dict=True)["communication"]["seen"]
        waits = [(one["passes"], one["median_wait_seconds"]) for one in told if one["state"] == "on"]
        assert waits and all(passes in (2, 3) and 0 < wait < 60 for passes, wait in waits), waits
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output
    assert (
        run.output.count("DistributedDataParallel of Several: 2 ranks, class Reordered, algorithm=")
        == 2
    ), run.output


def test_three_ranks_scale_as_the_reducer_does_and_join(train: Train) -> None:
    """Where one rank alone has a gradient, no order of additions matters: what differs is the
    scaling, by 1/3 or by 3.
    """
    run = train(
        BEGIN
        + MODELS
        + """
        def alone(ddp, step):
            (ddp(torch.randn(8, 4), True).pow(2).sum() * float(rank == step % ranks)).backward()
        def alone_after_accumulation(ddp, step):
            with ddp.no_sync():
                alone(ddp, step)
            alone(ddp, step)
        for view in (False, True):
            for to_none in (False, True):
                for body in (alone, alone_after_accumulation):
                    told = {"to_none": to_none, "body": body, "number": 4}
                    both = [agreed(steps(wrap(hook, gradient_as_bucket_view=view), **told)) for hook in (False, True)]
                    assert torch.equal(*both), (view, to_none, body)
        # Real gradients on all ranks: against the mean in float64, and the same in every run.
        real = [agreed(steps(wrap(True))) for _ in range(2)]
        assert torch.equal(*real) and torch.allclose(real[0], steps(wrap(False)), rtol=1e-4, atol=1e-6)

        # Ranks that run out of inputs at different times.
        for whole in (True, False):
            results = []
            for hook in (False, True):
                ddp = wrap(hook)
                optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
                with ddp.join(divide_by_initial_world_size=whole):
                    for step in range(1 + rank):
                        optimizer.zero_grad()
                        ddp(torch.full((2, 4), float(rank + 1)), True).pow(2).mean().backward()
                        optimizer.step()
                results.append(agreed(torch.cat([p.detach().flatten() for p in ddp.parameters()])))
            assert torch.allclose(*results, rtol=1e-5, atol=1e-7), whole
"""
        + END,
        ranks=3,
    )
    assert run.code == 0, run.output


def test_buckets_are_on_their_way_while_backward_goes_on(train: Train) -> None:
    """Rank 1 begins its backward when rank 0 is at the end of its own: a hook that waited for rank
    1 would never get there.
    """
    run = train(
        BEGIN
        + MODELS
        + """
        from datetime import timedelta
        ddp = wrap(True)
        store = dist.distributed_c10d._get_default_store()
        for step in range(3):
            loss = ddp(torch.randn(8, 4), True).sum()
            if rank == 0:
                handle = ddp.module.first.weight.register_hook(lambda _: store.set(f"reached/{step}", "yes"))
            else:
                store.wait([f"reached/{step}"], timedelta(seconds=60))
            loss.backward()
            if rank == 0:
                handle.remove()
        agreed(torch.cat([p.grad.flatten() for p in ddp.parameters()]))
        """
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output
    # The wait for the other's gradients is exposed communication, not backward.
    for ring in run.rings:
        assert all(step.comm_exposed_ns is not None for step in ring.steps)


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "os.fork() or os._exit(0)"])
def test_a_program_ends_as_it_would_have(train: Train, end: str) -> None:
    run = train(
        BEGIN + MODELS + f"        ddp = wrap(True)\n        steps(ddp)\n        {end}\n", ranks=3
    )
    assert run.code == (3 if "exit(3)" in end else 0) and run.output == "", run.output


LOST = """
        hooked = wrap(True)
        {begin}
        def body(ddp, step):
            if rank == 1 and step == 2:
                # In the middle: the gradients of the last layers are on their way.
                ddp.module.first.weight.register_hook(lambda _: {end})
            ddp(torch.randn(8, 4), True).sum().backward()
        began = time.monotonic()
        try:
            steps(hooked, body=body, number=5)
        except paceline.comm.CommError as error:
            assert rank != 1 and error.rank == 1 and "rank 1" in str(error), (rank, str(error))
            print("told by", rank, flush=True)
            {then}
"""


def lost(end: str, begin: str = "pass", then: str = "pass") -> str:
    return (
        BEGIN
        + MODELS
        + LOST.replace("{begin}", begin).replace("{end}", end).replace("{then}", then)
    )


@pytest.mark.parametrize("end,code", [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("1 / 0", 1)])
def test_every_survivor_names_the_rank_that_was_lost(train: Train, end: str, code: int) -> None:
    run = train(lost(end), ranks=3)
    assert run.code == code, run.output
    assert sorted(line for line in run.output.splitlines() if line.startswith("told by")) == [
        "told by 0",
        "told by 2",
    ], run.output


def test_a_stopped_rank_is_lost_after_the_silence(train: Train) -> None:
    begin = """store = dist.distributed_c10d._get_default_store()
        store.set(f"pid/{rank}", str(os.getpid()))
        hooked = DistributedDataParallel(Several(), bucket_cap_mb=0.04)
        paceline.comm.ddp_hook(hooked, heartbeat_timeout=timedelta(seconds=1))"""
    # The last of the survivors ends it.
    then = """if store.add("told", 1) == 2:
                os.kill(int(store.get("pid/1")), signal.SIGKILL)"""
    run = train(lost("os.kill(os.getpid(), signal.SIGSTOP)", begin, then), ranks=3)
    assert run.code == -9 and run.output.count("told by") == 2, run.output


def test_a_rank_is_reached_through_the_devices_that_are_named(train: Train) -> None:
    run = train(
        BEGIN
        + """
        from paceline.comm import _addresses
        devices = _addresses._devices
        assert ("lo", "127.0.0.1", True) in devices(), devices()
        found = [("lo", "127.0.0.1", True), ("eth0", "192.0.2.1", False), ("docker0", "172.17.0.1", False),
                 ("eth1", "198.51.100.1", False), ("eth10", "203.0.113.1", False)]
        _addresses._devices = lambda: found
        for names, wanted in (
            ("eth", ["192.0.2.1", "198.51.100.1", "203.0.113.1"]),
            ("=eth1", ["198.51.100.1"]),
            ("=eth1,eth0,eth7", ["198.51.100.1", "192.0.2.1"]),
            ("eth1,eth,lo", ["198.51.100.1", "203.0.113.1", "192.0.2.1", "127.0.0.1"]),
            ("^docker", ["192.0.2.1", "198.51.100.1", "203.0.113.1"]),
            ("^=eth1,docker0", ["192.0.2.1", "203.0.113.1"]),
            ("wlan", []),
            ("", []),
            ("=", []),
            ("^", []),
        ):
            assert _addresses.addresses_of(names) == wanted, (names, _addresses.addresses_of(names))
        def reached(**names):
            for name in ("PACELINE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "PACELINE_POD_IP"):
                os.environ.pop(name, None)
                if name.split("_")[0].lower() in names:
                    os.environ[name] = names[name.split("_")[0].lower()]
            os.environ["PACELINE_POD_IP"] = "192.0.2.9"
            return _addresses.own_address()
        assert reached() == reached(nccl="wlan", gloo="wlan0") == "192.0.2.9"
        assert reached(gloo="eth0", nccl="=eth0,eth1") == reached(gloo="eth0,eth1", nccl="=eth0") == "192.0.2.1,198.51.100.1"
        assert reached(gloo="eth1", nccl="=eth0") == "198.51.100.1"
        assert reached(paceline="=eth10", gloo="eth1", nccl="eth") == "203.0.113.1"
        try:
            reached(paceline="wlan")
        except ValueError as error:
            assert "PACELINE_SOCKET_IFNAME: 'wlan'" in str(error) and "docker0" in str(error), error
        else:
            raise AssertionError("not refused")
        # What one variable of NCCL's excludes leaves more devices than a card has room for.
        _addresses._devices = lambda: [(f"net{i}", f"192.0.2.{i}", False) for i in range(40)]
        assert reached(nccl="^lo").count(",") == 15
        def refuse():
            raise OSError("no sockets")
        _addresses._devices = refuse
        assert reached(gloo="eth0") == "192.0.2.9" and _addresses.why_no_address() == ""
        os.environ["PACELINE_SOCKET_IFNAME"] = "eth"
        assert "cannot be listed here: no sockets" in _addresses.why_no_address()
        from paceline.comm import _choice
        names = {_choice._file(shape).name for shape in ("4," * 300 + "4", "4," * 300 + "4-rdma", "4," * 300 + "4/2", "4,4", "4,4-rdma")}
        assert len(names) == 5 and max(map(len, names)) < 200, names
        # For real, of two addresses that are this host's.
        _addresses._devices = lambda: [("a", f"127.0.0.{2 + rank}", False), ("b", f"127.0.1.{2 + rank}", False)]
        reached(paceline="a,b")
        with paceline.comm.Communicator(host=f"host-{rank}") as comm:
            assert f"# flows go over 2 addresses of each rank, here 127.0.0.{2 + rank} 127.0.1.{2 + rank}" in comm.plan(), comm.plan()
            assert comm.shape() == "1,1/2" and float(comm.all_reduce(torch.ones(70000)).sum()) == 140000
        """
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_models_that_cannot_have_it_are_refused(train: Train) -> None:
    run = train(
        BEGIN
        + MODELS
        + """
        alone = [dist.new_group([n]) for n in range(ranks)][rank]
        for model, why in (
            (Several(), "a Several, no DistributedDataParallel"),
            (DistributedDataParallel(Several(), process_group=alone), "one rank"),
        ):
            try:
                paceline.comm.ddp_hook(model)
            except ValueError as error:
                assert why in str(error), error
            else:
                raise AssertionError(why)
        """
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output
