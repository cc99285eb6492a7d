# SPDX-License-Identifier: Apache-2.0
"""paceline.comm.Gradients: what DistributedDataParallel would have made of them, to the bit, and
updates while sums are on their way.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from programs import Train
from test_comm import BEGIN, END, MODELS


@pytest.fixture
def train(train_by_fork: Train, tmp_path: Path) -> Train:
    return functools.partial(train_by_fork, XDG_CACHE_HOME=str(tmp_path))


# With the methods of DistributedDataParallel that `steps` of test_comm uses.
ENGINE = (
    MODELS
    + """
        class Engined(nn.Module):
            def __init__(self, module, **options):
                super().__init__()
                self.module = module
                self.gradients = paceline.comm.Gradients(module, **{"bucket_mb": 0.04, **options})
                self.no_sync = self.gradients.no_sync
            def forward(self, *given):
                return self.module(*given)
        def refused(call, text, kind=ValueError):
            try:
                call()
            except kind as error:
                assert text in str(error), error
            else:
                raise AssertionError(text)
"""
)


def test_gradients_of_two_ranks_are_ddps_to_the_bit(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        def accumulate(ddp, step):
            with ddp.no_sync():
                ddp(torch.randn(8, 4), True).sum().backward()
            ddp(torch.randn(8, 4), True).pow(2).sum().backward()
        def sometimes(ddp, step):
            # In turn, used by both, by one, by none.
            ddp(torch.randn(8, 4), step == 0 or (step == 1 and rank == 0)).pow(2).mean().backward()
        for theirs, ours, told in (
            ({}, {}, {}),
            ({}, {}, {"to_none": False}),
            ({}, {}, {"body": accumulate}),
            ({}, {}, {"body": accumulate, "to_none": False}),
            ({"find_unused_parameters": True}, {"find_unused": True}, {"use": False}),
            ({"find_unused_parameters": True}, {"find_unused": True}, {"body": sometimes, "number": 4}),
            ({"find_unused_parameters": True}, {"find_unused": True}, {"body": sometimes, "number": 4, "to_none": False}),
        ):
            expected = agreed(steps(wrap(False, **theirs), **told))
            assert torch.equal(expected, agreed(steps(Engined(Several(), **ours), **told))), (ours, told)

        # Gradients that come in another order on each rank.
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(4)
                self.first, self.second = nn.Linear(4, 4000), nn.Linear(4, 4000)
            def forward(self, x, use=True):
                parts = [(branch(x) * (one + 1)).sum() for one, branch in list(enumerate((self.first, self.second)))[:: 1 - 2 * rank]]
                return sum(parts)
        def branched(ddp, step):
            ddp(torch.randn(8, 4)).backward()
        both = [agreed(steps(one, body=branched)) for one in (wrap(False, Branches()), Engined(Branches()))]
        assert torch.equal(*both)

        # Several types at once, tensors that are not contiguous, tables with sparse gradients, a backward within backward.
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(4)
                self.wide = nn.Parameter(torch.randn(100, dtype=torch.float64))
                self.narrow = nn.Parameter(torch.randn(100).to(torch.float16))
                self.coarse = nn.Parameter(torch.randn(100).to(torch.bfloat16))
                self.turned = nn.Parameter(torch.randn(100, dtype=torch.complex64))
                self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
                self.table, self.frozen = nn.Embedding(10, 4, sparse=True), nn.Parameter(torch.ones(2), requires_grad=False)
            def forward(self, x, use=True):
                words = torch.tensor([rank, 3 + rank, rank, 9])
                picture = self.conv(x.sum() * torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last))
                parts = (self.wide * x.sum(), self.narrow * x.sum().half(), self.coarse * x.sum().bfloat16(), (self.turned * x.sum()).abs(),
                         picture, self.table(words))
                return sum(part.double().abs().sum() for part in parts)
        def dense(tensor):
            flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor.to_dense() if tensor.is_sparse else tensor
            return flat.flatten().double()
        def mixed(model):
            for step in range(3):
                torch.manual_seed(rank + 10 * step)
                model.zero_grad()
                model(torch.randn(8, 4)).backward()
            return [p.grad for p in model.parameters() if p.grad is not None]
        # PyTorch 1.13's gloo knows neither bfloat16 nor complex numbers.
        results = [mixed(Engined(Mixed()))] + [mixed(wrap(hook, Mixed())) for hook in ((True, False) if torch.__version__ > "2" else ())]
        for ours, *theirs in zip(*results):
            assert all(torch.equal(dense(ours), dense(one)) for one in theirs), (ours, theirs)
        assert results[0][-1].is_sparse and results[0][-1].is_coalesced() and dense(results[0][-1]).abs().sum() > 0
        agreed(torch.cat([dense(grad) for grad in results[0]]))
        class Rarely(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.always = nn.Embedding(5, 2, sparse=True), nn.Parameter(torch.ones(1))
        rarely = Rarely()
        Engined(rarely, find_unused=True)
        for step in range(3):
            rarely.zero_grad()
            (rarely.always + (rarely.table(torch.tensor([1, 3, 1])).sum() if rank == step else 0)).backward()
            found = rarely.table.weight.grad
            assert (found is None or found._nnz() == 0) if step == 2 else found.to_dense().tolist() == [[0, 0], [1, 1], [0, 0], [0.5, 0.5], [0, 0]], found
        from torch.utils.checkpoint import checkpoint
        class Checkpointed(Several):
            def forward(self, x, use=True):
                x = self.first(x)
                for layer in self.deep:
                    x = checkpoint(layer, x, use_reentrant=True)
                return self.last(self.unused(x))
        assert torch.equal(agreed(steps(wrap(False, Checkpointed()))), agreed(steps(Engined(Checkpointed()))))
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_ranks_begin_alike_and_have_the_bits_of_the_hook(train: Train) -> None:
    """Of three ranks sums depend on where a gradient lies: in one bucket on either side, in the
    order in which they come.
    """
    run = train(
        BEGIN
        + ENGINE
        + """
        torch.manual_seed(rank)
        module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
        module.register_buffer("mask", torch.rand(7) > 0.5)
        module[1].running_mean.normal_()
        model = Engined(module)
        agreed(torch.cat([tensor.detach().double().flatten() for tensor in (*module.parameters(), *module.buffers())]))
        told = [line for line in paceline.explain().splitlines() if " Sequential: 3 ranks, class Reordered, algorithm=" in line]
        assert len(told) == 1, paceline.explain()

        plan = "algorithm=flat"
        def hooked():
            ddp = DistributedDataParallel(Several())
            paceline.comm.ddp_hook(ddp, plan=plan)
            return ddp
        assert torch.equal(agreed(steps(hooked())), agreed(steps(Engined(Several(), plan=plan, bucket_mb=25))))
        # And in many, of a communicator of the program's, in a group of some ranks.
        pair = dist.new_group([0, 2])
        if rank != 1:
            with paceline.comm.Communicator(pair) as both:
                gradients = paceline.comm.Gradients(list(Several().parameters()), bucket_mb=0.04, communicator=both)
                assert len(gradients._buckets) == 1
                model = Several()
                gradients = paceline.comm.Gradients(model, bucket_mb=0.04, communicator=both)
                model(torch.randn(8, 4), True).sum().backward()
                # The first bucket ends with the last layer that is large enough.
                assert len(gradients._buckets) > 3 and gradients._names[gradients._buckets[0].numbers[0]].startswith("last.")
                before = model.last.weight.grad.clone()
                gradients.close()
                model.last.weight.grad = None
                model(torch.full((8, 4), rank + 1.0), True).sum().backward()
                assert not torch.equal(before, model.last.weight.grad) and float(both.allreduce(torch.ones(1))) == 2
"""
        + END,
        ranks=3,
    )
    assert run.code == 0, run.output


@pytest.mark.skipif(not hasattr(torch, "set_default_device"), reason="came with PyTorch 2.0")
def test_a_default_device_is_the_programs_affair(train: Train) -> None:
    """What the engine and the hook make for themselves lies where their parameters do, whatever a
    program's own tensors lie on.
    """
    run = train(
        BEGIN
        + ENGINE
        + """
        def bits(default):
            torch.manual_seed(4)
            table = nn.Embedding(50, 64, sparse=True)
            models = [Several(), Several(), nn.Sequential(table, nn.Linear(64, 64))]
            ddps = [DistributedDataParallel(model, bucket_cap_mb=0.04) for model in models[:1]]
            if default:
                torch.set_default_device(default)
            try:
                paceline.comm.ddp_hook(ddps[0], compression="PowerSGD:rank=2,start=2", host=f"host{rank}")
                made = [*ddps, *(paceline.comm.Gradients(model, bucket_mb=0.04, find_unused=True) for model in models[1:])]
                for step in range(4):
                    inputs = torch.arange(32.0, device="cpu").view(8, 4) * (rank + step)
                    for model in (ddps[0], models[1]):
                        model(inputs, True).pow(2).mean().backward()
                    models[2](torch.arange(4, device="cpu") * (rank + 1)).sum().backward()
                for one in made[1:]:
                    one.close()
            finally:
                torch.set_default_device("cpu")
            return [parameter.grad.to_dense() for model in models for parameter in model.parameters()]
        for one, other in zip(bits(None), bits("meta")):
            assert torch.equal(one, other) and one.device.type == "cpu"
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_compressed_gradients_and_their_checkpoints(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        os.environ["PACELINE_NUMERICS"] = "Lossy"
        host = f"host-{rank}"
        # All buckets but the first of as many values as compression takes.
        for compression in ("FP16", "PowerSGD:rank=2,start=2"):
            exact = agreed(steps(Engined(Several(), host=host), number=4))
            engined = Engined(Several(), compression=compression, host=host)
            lossy = agreed(steps(engined, number=4))
            per_step = len(exact) // 4
            assert torch.equal(exact[: 2 * per_step], lossy[: 2 * per_step])
            late = exact[2 * per_step :], lossy[2 * per_step :]
            assert not torch.equal(*late) and (late[0] - late[1]).norm() < 0.7 * late[0].norm(), compression
            kept = engined.gradients.state_dict()
            assert kept["passes"] == 4 and kept["buckets"] and kept["compression"].startswith(compression.split(":")[0])
            again = Engined(Several(), compression=compression, host=host)
            again.gradients.load_state_dict(kept)
            steps(again, number=3)
            assert again.gradients.state_dict()["passes"] == 7
        refused(lambda: Engined(Several()).gradients.state_dict(), "not compressed")
        os.environ["PACELINE_NUMERICS"] = "Reordered"
        refused(lambda: Engined(Several(), compression="FP16"), "PACELINE_NUMERICS is Reordered")
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_updates_go_bucket_by_bucket_while_sums_are_on_their_way(train: Train) -> None:
    """Rank 1 stops in its backward until rank 0 has updated its last layer: a step that waited for
    all sums would never get there.
    """
    run = train(
        BEGIN
        + ENGINE
        + """
        store = dist.distributed_c10d._get_default_store()
        model = Several()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gradients = paceline.comm.Gradients(model, bucket_mb=0.04, overlap=optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4), True).sum()
            if step == 2 and rank == 0:
                loss.backward()
                before = model.last.weight.detach().clone()
                def watch():
                    while torch.equal(before, model.last.weight):
                        time.sleep(0.001)
                    store.set("updated", "yes")
                watcher = threading.Thread(target=watch)
                watcher.start()
                optimizer.step()
                watcher.join()
            elif step == 2:
                model.first.weight.register_hook(lambda _: store.wait(["updated"], timedelta(seconds=60)))
                loss.backward()
                optimizer.step()
            else:
                loss.backward()
                optimizer.step()
        agreed(torch.cat([p.detach().flatten() for p in model.parameters()]))
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_steps_with_overlap_are_those_without(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        import functools
        from paceline.comm._overlap import Awaited
        def fit(make, overlap, body=None, number=6):
            model = Several()
            optimizer = make(model.parameters())
            gradients = paceline.comm.Gradients(model, bucket_mb=0.04, overlap=optimizer if overlap else None)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
            for step in range(number):
                torch.manual_seed(10 * step + rank)
                if body is not None:
                    body(model, optimizer, gradients)
                else:
                    optimizer.zero_grad()
                    model(torch.randn(8, 4), True).pow(2).mean().backward()
                    assert (type(model.first.weight.grad) is Awaited) == (overlap and step > 0)
                    optimizer.step()
                scheduler.step()
            gradients.close()
            assert type(model.first.weight.grad) is not Awaited
            return agreed(torch.cat([p.detach().flatten() for p in model.parameters()]))

        def clipped(model, optimizer, gradients):
            optimizer.zero_grad()
            model(torch.randn(8, 4), True).pow(2).mean().backward()
            # Norms of sums, and sums that are changed: no step may come before.
            assert float(nn.utils.clip_grad_norm_(model.parameters(), 0.01)) > 0.01
            optimizer.step()
        def accumulated(model, optimizer, gradients):
            optimizer.zero_grad()
            with gradients.no_sync():
                model(torch.randn(8, 4), True).sum().backward()
            model(torch.randn(8, 4), True).pow(2).mean().backward()
            # Into what is on its way, and on.
            model(torch.randn(8, 4), True).pow(2).mean().backward()
            optimizer.step()
        def skipped(model, optimizer, gradients):
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.randn(8, 4), True).pow(2).mean().backward()
            optimizer.step()
        def closed(model, optimizer, gradients):
            def closure():
                optimizer.zero_grad()
                loss = model(torch.randn(8, 4), True).pow(2).mean()
                loss.backward()
                return loss
            assert float(optimizer.step(closure)) > 0
        def frozen(model, optimizer, gradients):
            optimizer.zero_grad()
            model(torch.randn(8, 4), True).pow(2).mean().backward()
            model.first.bias.grad = None
            optimizer.step()
        def replaced(model, optimizer, gradients):
            optimizer.zero_grad()
            model(torch.randn(8, 4), True).pow(2).mean().backward()
            # Of the first bucket and of the last.
            model.last.bias.grad = torch.zeros(1)
            model.first.weight.grad = torch.full((64, 4), 0.5)
            optimizer.step()
            assert model.last.bias.grad.tolist() == [0] and (model.first.weight.grad == 0.5).all()
        sgd = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)
        for make in (sgd, functools.partial(torch.optim.AdamW, lr=0.01), functools.partial(torch.optim.RMSprop, lr=0.01)):
            assert torch.equal(fit(make, False), fit(make, True)), make
        for body in (clipped, accumulated, skipped, closed, frozen, replaced):
            assert torch.equal(fit(sgd, False, body), fit(sgd, True, body)), body

        # Who watches steps sees whole ones, of one optimizer or of all.
        def watched(calls, hook):
            model = Several()
            optimizer = sgd(model.parameters())
            gradients = paceline.comm.Gradients(model, bucket_mb=0.04, overlap=optimizer)
            before = model.first.weight.detach().clone()
            handle = hook(optimizer)
            for step in range(3):
                optimizer.zero_grad()
                model(torch.randn(8, 4), True).pow(2).mean().backward()
                optimizer.step()
                assert len(calls) == step + 1 and all(p.grad is not None for p in model.parameters()), calls
            handle.remove()
        if torch.__version__ > "2":
            from torch.optim import optimizer as all_of_them
            for when in ("pre", "post"):
                calls = []
                watched(calls, lambda optimizer: getattr(optimizer, f"register_step_{when}_hook")(lambda *_: calls.append(when)))
                calls = []
                of_all = getattr(all_of_them, f"register_optimizer_step_{when}_hook")
                watched(calls, lambda optimizer: of_all(lambda *_: calls.append(when)))

        # Whatever reads a gradient sees the sum.
        model = Several()
        optimizer = sgd(model.parameters())
        gradients = paceline.comm.Gradients(model, bucket_mb=0.04, overlap=optimizer)
        values = []
        read = [
            (lambda g: g.sum().item()), (lambda g: g.numpy().copy().sum()), (lambda g: float(torch.stack([g, g])[1].sum())),
            (lambda g: g.detach().clone().sum().item()), (lambda g: float(torch.nn.functional.relu(g.data).sum())),
        ]
        for step in range(3):
            model.zero_grad()
            model(torch.full((8, 4), rank + 1.0), True).sum().backward()
            for number, bucket in enumerate(gradients._buckets if step else ()):
                first = bucket.parameters()[0]
                assert type(first.grad) is Awaited
                values.append(read[(number + 3 * step) % 5](first.grad))
                assert type(first.grad) is torch.Tensor
        assert len(values) > 6
        agreed(torch.tensor(values))
        refused(lambda: paceline.comm.Gradients(Several(), overlap=torch.optim.LBFGS(Several().parameters())), "overlap is a LBFGS")
        refused(lambda: paceline.comm.Gradients(Several(), overlap=optimizer, find_unused=True), "overlap and find_unused")
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_a_schedule_made_before_sees_no_other_step(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        import contextlib, math, warnings
        warnings.simplefilter("error")
        model = Several()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        with contextlib.closing(paceline.comm.Gradients(model, overlap=optimizer)):
            for step in range(3):
                model(torch.randn(8, 4), True).sum().backward()
                optimizer.step()
                schedule.step()
        optimizer.step()
        schedule.step()
        assert math.isclose(schedule.get_last_lr()[0], 1e-5)
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_the_quickest_size_of_buckets_is_found_by_all(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        from paceline.comm import _bucket_size
        _bucket_size.CANDIDATES = (25.0, 0.04, 0.1)
        expected = agreed(steps(wrap(False), number=26))
        for overlap in (False, True):
            model = Several()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            gradients = paceline.comm.Gradients(model, bucket_mb="auto", overlap=optimizer if overlap else None)
            # For rank 1 alone 0.04 would be quicker than 0.1.
            seen, tried, now = [], [], [0.0]
            def clock():
                now[0] += {0.04: 2.0, 0.1: 1.0 + 1.5 * rank}.get(round(gradients.bucket_mb, 2), 3.0)
                return now[0]
            _bucket_size.time = type("Clock", (), {"monotonic": staticmethod(clock)})
            for step in range(26):
                torch.manual_seed(100 * step + rank)
                optimizer.zero_grad(set_to_none=True)
                model(torch.randn(8, 4), True).pow(2).mean().backward()
                tried.append(round(gradients.bucket_mb, 2))
                seen += [p.grad.clone().flatten() for p in model.parameters()]
                optimizer.step()
            # Sizes change between passes, and no gradient with them.
            assert torch.equal(agreed(torch.cat(seen)), expected)
            assert tried == [0.04] * 7 + [0.1] * 6 + [25.0] * 6 + [0.1] * 7, tried
        refused(lambda: paceline.comm.Gradients(Several(), bucket_mb="auto", compression="FP16"), "'auto' with compression")
        refused(lambda: paceline.comm.Gradients(Several(), bucket_mb="large"), "bucket_mb is 'large'")
"""
        + END,
        ranks=2,
    )
    assert run.code == 0, run.output


def test_what_it_cannot_is_refused_on_all_ranks(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        Gradients = paceline.comm.Gradients
        refused(lambda: Gradients(wrap(False)), "use paceline.comm.ddp_hook(model), or pass model.module")
        refused(lambda: Gradients(Several(), bucket_mb=0), "bucket_mb is 0")
        refused(lambda: Gradients([torch.ones(2)]), "no parameter that requires a gradient")
        refused(lambda: Gradients([torch.ones(2, device="meta", requires_grad=True)]), "on meta: it must be on the CPU; on GPUs use Distr")
        refused(lambda: Gradients([torch.ones(2, requires_grad=True) * 2]), "no leaf")
        refused(lambda: Gradients([torch.ones(2 + rank, requires_grad=True)]), "differ between ranks")
        refused(lambda: Gradients(Several(), bucket_mb=1 + rank), "differ between ranks")
        refused(lambda: Gradients(Several(), plan="" if rank else "algorithm=auto"), "differ between ranks")
        own = None if rank else paceline.comm.Communicator()
        refused(lambda: Gradients(Several(), communicator=own), "differ between ranks")
        # Those that refused have closed what they made, and nothing of the program's.
        from paceline.comm import _handle
        assert list(_handle._living) == [own] * (rank == 0), list(_handle._living)
        if own is not None:
            own.close()
        # Without the word that a step may leave out parameters.
        model = Several()
        gradients = Gradients(model)
        model(torch.randn(8, 4)).sum().backward()
        model.zero_grad()
        refused(lambda: model(torch.randn(8, 4)).sum().backward(), "before those of unused.weight, unused.bias: pass find_unused=True", RuntimeError)
        # Steps whose parameters are all others: what came first has gone by when the rest comes.
        parts = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
        gradients = Gradients(parts)
        dist.barrier()
        parts[0](torch.randn(8, 4)).sum().backward()
        parts.zero_grad(set_to_none=True)
        refused(lambda: parts[1](torch.randn(8, 4)).sum().backward(), "of 0.weight was taken away before its sum: pass find_unused", RuntimeError)
        # On one rank alone: the others are told.
        table = nn.Embedding(5, 2, sparse=rank == 1)
        gradients = Gradients([table.weight])
        dist.barrier()
        refused(lambda: table(torch.tensor([1])).sum().backward(), "the gradient of parameter 0 is sparse: pass the module", RuntimeError)
        # A rank that is lost.
        model = Several()
        gradients = Gradients(model, bucket_mb=0.04)
        for step in range(3):
            if rank == 1 and step == 2:
                model.first.weight.register_hook(lambda _: os._exit(3))
            try:
                model(torch.randn(8, 4), True).sum().backward()
            except paceline.comm.CommError as error:
                assert rank != 1 and error.rank == 1, (rank, str(error))
                # Nothing is left of the engine, even so.
                refused(gradients.close, "rank 1", paceline.comm.CommError)
                model.zero_grad()
                model(torch.full((8, 4), rank + 1.0), True).sum().backward()
                assert not gradients._handles and gradients.communicator not in _handle._living and not gradients.under_way
                print("told by", rank, flush=True)
                os._exit(0)
"""
        + END,
        ranks=3,
    )
    assert run.code == 3 and sorted(
        line for line in run.output.splitlines() if "told by" in line
    ) == [
        "told by 0",
        "told by 2",
    ], run.output


def test_a_step_is_the_programs_again_when_a_rank_is_lost(train: Train) -> None:
    run = train(
        BEGIN
        + ENGINE
        + """
        model = Several()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gradients = paceline.comm.Gradients(model, bucket_mb=0.04, overlap=optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4), True).sum()
            if rank == 1 and step == 2:
                os._exit(3)
            loss.backward()
            if step < 2:
                optimizer.step()
        refused(gradients.close, "rank 1", paceline.comm.CommError)
        before = model.first.weight.detach().clone()
        assert "step" not in optimizer.__dict__ or optimizer.step.__func__ is type(optimizer).step
        # No sum came: nothing is updated by a rank's own part of it.
        assert model.first.weight.grad is None
        optimizer.step()
        assert torch.equal(before, model.first.weight)
        loss = model(torch.ones(8, 4), True).sum()
        loss.backward()
        optimizer.step()
        assert not torch.equal(before, model.first.weight)
        print("on by itself", flush=True)
        os._exit(0)
""",
        ranks=2,
    )
    assert run.code == 3 and "on by itself" in run.output, run.output
