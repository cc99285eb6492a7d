# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel's gradients over a communicator, by a line in the program."""

from __future__ import annotations

import pytest
from comm_programs import BEGIN, MODELS, passes
from programs import Train


# A sum of two numbers has one order. So gradients of two ranks are compared to the bit.
def test_gradients_of_two_ranks_are_gloos_to_the_bit(train: Train) -> None:
    passes(
        train,
        MODELS
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
""",
        ranks=2,
    )


def test_several_models_and_all_types_are_gloos_to_the_bit(train: Train) -> None:
    passes(
        train,
        MODELS
        + """
        # Two models in one backward, one of them of another type.
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
""",
        ranks=2,
    )


def test_sparse_and_checkpointed_gradients_are_gloos_to_the_bit(train: Train) -> None:
    passes(
        train,
        MODELS
        + """
        # Sparse gradients whose rows occur more than once use the communicator too. A reentrant checkpoint is a backward within backward.
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
""",
        ranks=2,
    )


def test_a_model_outlives_its_group_and_is_reported(train: Train) -> None:
    run = passes(
        train,
        MODELS
        + """
        # The group of this model is destroyed before the model.
        group = dist.new_group([0, 1])
        late = wrap(True, process_group=group)
        steps(late)
        dist.destroy_process_group(group)
        lines = [line for line in paceline.explain().splitlines() if "DistributedDataParallel of Several" in line]
        print(sorted(set(line.partition("; gradients were waited for ")[0] for line in lines)))
        told = paceline.explain(as_dict=True)["communication"]["seen"]
        waits = [(one["passes"], one["median_wait_seconds"]) for one in told if one["state"] == "on"]
        assert waits and all(passes in (2, 3) and 0 < wait < 60 for passes, wait in waits), waits
""",
        ranks=2,
    )
    assert (
        run.output.count("DistributedDataParallel of Several: 2 ranks, class Reordered, algorithm=")
        == 2
    ), run.output


def test_three_ranks_scale_as_the_reducer_does_and_join(train: Train) -> None:
    """If only one rank has a gradient, the order of additions does not matter. What can differ is the
    scaling, by 1/3 or by 3.
    """
    passes(
        train,
        MODELS
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
        # Gradients on all ranks are close to PyTorch's, and the same in every run.
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
""",
        ranks=3,
    )


def test_buckets_are_on_their_way_while_backward_goes_on(train: Train) -> None:
    """Rank 1 begins its backward when rank 0 is at the end of its own. A hook that waited for rank 1
    would never get there.
    """
    run = passes(
        train,
        MODELS
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
        """,
        ranks=2,
    )
    # The wait for the other's gradients is exposed communication, not backward.
    for ring in run.rings:
        assert all(step.comm_exposed_ns is not None for step in ring.steps)


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "os.fork() or os._exit(0)"])
def test_a_program_ends_as_it_would_have(train: Train, end: str) -> None:
    run = train(
        BEGIN + MODELS + f"        ddp = wrap(True)\n        steps(ddp)\n        {end}\n", ranks=3
    )
    assert run.code == (3 if "exit(3)" in end else 0) and run.output == "", run.output


def test_models_that_cannot_have_it_are_refused(train: Train) -> None:
    passes(
        train,
        MODELS
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
        """,
        ranks=2,
    )
