# SPDX-License-Identifier: Apache-2.0
"""paceline.comm.Communicator: collectives on tensors, and what it refuses."""

from __future__ import annotations

from comm_programs import passes
from programs import Train


def test_collectives_on_tensors(train: Train) -> None:
    passes(
        train,
        """
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
            with paceline.comm.Communicator() as comm:
                x = torch.arange(1001).remainder(7).to(dtype) + rank
                assert comm.all_reduce(x) is x
                assert torch.equal(x, (torch.arange(1001).remainder(7) * ranks + 3).to(dtype)), dtype
                started = [comm.all_reduce(torch.full((n,), rank + 1, dtype=dtype), async_op=True) for n in (5, 0, 70000)]
                # A blocking call runs after all that were started.
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
                # Send r + 1 elements to rank r, and then as many to each.
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
""",
        ranks=3,
    )


def test_two_ranks_send_and_receive_beside_empty_sparse_sums(train: Train) -> None:
    passes(
        train,
        """
        with paceline.comm.Communicator() as comm:
            if rank == 2:
                comm.send(torch.arange(5.0), dst=0)
            if rank == 0:
                assert torch.equal(comm.recv(torch.empty(5), src=2), torch.arange(5.0))
            none = comm.all_reduce_sparse(torch.empty(0, dtype=torch.int64), torch.empty(0, 4))
            assert none[0].shape == (0,) and none[1].shape == (0, 4)
""",
        ranks=3,
    )


def test_groups_of_some_ranks_and_pinned_plans(train: Train) -> None:
    passes(
        train,
        """
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
""",
        ranks=3,
    )


def test_arguments_are_refused_by_name(train: Train) -> None:
    passes(
        train,
        """
        refused = paceline.comm.Communicator()
        dist.barrier()  # until all ranks have made theirs
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
""",
        ranks=3,
    )


def test_what_one_rank_refuses_ends_the_call_on_all(train: Train) -> None:
    """The other ranks need not wait for it."""
    passes(
        train,
        """
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
                    one.barrier()  # a rank that only sends may succeed before
                except (ValueError, AttributeError) as error:
                    assert rank == 1 and words.split(": ", 1)[1] in str(error), error
                except paceline.comm.CommError as error:
                    assert rank != 1 and error.rank == 1 and f"rank 1 gave up: {words}" in str(error), error
                else:
                    raise AssertionError(words)
""",
        ranks=3,
    )


def test_what_concerns_one_rank_alone_ends_nothing(train: Train) -> None:
    passes(
        train,
        """
        # These calls concern this rank alone, so they end nothing.
        comm = paceline.comm.Communicator()
        for own in (lambda: comm.send(torch.ones(3), dst=rank), lambda: comm.all_reduce(torch.ones(3, 3).t(), async_op=True)):
            try:
                own()
                raise AssertionError("not refused")
            except ValueError:
                pass
        comm.barrier()
        comm.close()
""",
        ranks=3,
    )


def test_autograd_sees_that_a_sum_overwrites_its_tensor(train: Train) -> None:
    passes(
        train,
        """
        comm = paceline.comm.Communicator()
        leaf = torch.ones(3, requires_grad=True)
        squared = leaf ** 2
        product = squared * squared
        comm.all_reduce(squared.detach())
        try:
            product.sum().backward()
            raise AssertionError("autograd did not see that its input was overwritten")
        except RuntimeError as error:
            assert "inplace" in str(error), error
        comm.close()
""",
        ranks=3,
    )


def test_a_forked_child_and_a_closed_communicator_make_no_calls(train: Train) -> None:
    passes(
        train,
        """
        comm = paceline.comm.Communicator()
        # The child does not keep its parent's connections open.
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
""",
        ranks=3,
    )
