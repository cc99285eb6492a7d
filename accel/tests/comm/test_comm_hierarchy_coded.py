# SPDX-License-Identifier: Apache-2.0
"""Compressed gradients by way of hosts. As in test_comm_hierarchy.py, groups of gloo take the place of
NCCL's.
"""

from __future__ import annotations

from comm_programs import MODELS, passes
from programs import Train
from test_comm_hierarchy import FORCED, pytestmark

__all__ = ["pytestmark"]

# A model of one tensor whose gradient is its input, and the residuals of all owners of shards, put
# together.
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
            channels = min(map(len, hosts))
            return torch.cat([sum(everyone[host[channel]] for host in hosts) for channel in range(channels)])
"""


def test_what_halves_lose_comes_later(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
        + FORCED
        + LOST
        + """
        torch.manual_seed(rank)
        # Only one host has values, so sums between hosts round nothing.
        x = torch.randn(5001) * (rank < 2)
        x[7] = 0
        large = x.clone()
        large[7] = 3e5 * (rank < 2)  # beyond fp16's range, once
        mean = mean_of(x)
        for compression, bits in (("FP16", 11), ("BF16", 8)):
            ddp = by_hosts(Many(5001), compression)
            for _ in range(2):
                assert torch.allclose(step(ddp, x), mean, rtol=1e-5, atol=1e-6), "nothing is compressed before"
            sums = (step(ddp, large))
            assert sums.isfinite().all() and 0 < (sums - mean)[:7].abs().max() < 8 * 2.0**-bits
            for _ in range(63):
                sums += step(ddp, x)
            assert abs(sums[7] / 1.5e5 - 1) < 1e-3, sums[7]
            sums[7] = 0
            # Without a residual the roundings of 64 steps would add up. With it only the last one is left, and that of this sum.
            error = (sums - 64 * mean).abs() * 2.0**bits / mean.abs().clamp(min=0.1)
            assert error.max() < 4, (compression, error.max())
            state = paceline.comm.state_dict(ddp)
            assert state["compression"].startswith(compression) and state["hosts"] == "2,2" and state["passes"] == 66
            (bucket,) = state["buckets"].values()
            assert bucket["rest"].shape == (2504,) and bool(bucket["rest"].any()) == (rank < 2)
            # A run that continues from there makes the same step, after two uncompressed ones.
            again = by_hosts(Many(5001), compression)
            paceline.comm.load_state_dict(again, state)
            theirs = step(ddp, x)
            ours = [step(again, x) for _ in range(3)]
            assert torch.equal(ours[2], theirs) and not torch.equal(ours[1], theirs)
            # A value that is not finite arrives as one, and leaves no residual.
            for bad in (float("inf"), float("nan")):
                worse = x.clone()
                worse[5] = bad
                assert not step(ddp, worse)[5].isfinite()
                assert (step(ddp, x)).isfinite().all()
""",
        ranks=4,
    )


def test_what_any_code_loses_is_kept_by_who_lost_it(train_by_fork: Train) -> None:
    """What has arrived in all steps and the residuals add up to what was sent, for every code, in float32
    and in 16 bits.
    """
    passes(
        train_by_fork,
        MODELS
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
                # In 16 bits the sum is rounded once more at the end.
                close = 1e-5 if dtype is torch.float32 else 0.05
                worst = (said + kept[:count] - sent).abs().max()
                assert worst < close * max(1, said.abs().max()), (compression, dtype, worst)
                # A value that is not finite arrives as one in this step, and leaves no residual.
                for bad in (float("inf"), float("nan")):
                    worse = x.clone()
                    worse[5] = bad if rank == 3 else 0
                    assert not step(ddp, worse)[5].isfinite(), (compression, bad)
                    assert step(ddp, x).isfinite().all(), (compression, bad)
        # Compression to 16 bits does not change a bucket that has 16 bits.
        ddp = by_hosts(Many(count, torch.bfloat16), "FP16")
        [step(ddp, x) for _ in range(4)]
        assert not paceline.comm.state_dict(ddp)["buckets"]
""",
        ranks=4,
    )


def test_momentum_is_gathered_by_who_owns_a_shard(train_by_fork: Train) -> None:
    """Compares deep gradient compression of each host's sum with its paper's rule."""
    passes(
        train_by_fork,
        MODELS
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
""",
        ranks=4,
    )


def test_updates_of_1_bit_adam_go_by_hosts(train_by_fork: Train) -> None:
    """Signs are sent once the variance is frozen, and what they lose arrives later."""
    passes(
        train_by_fork,
        MODELS
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
""",
        ranks=4,
    )


def test_power_sgd_is_that_of_the_communicator(train_by_fork: Train) -> None:
    """Compares PyTorch's operators, which a GPU uses, with the library. A step that is not finite must not
    affect later ones.
    """
    passes(
        train_by_fork,
        MODELS
        + FORCED
        + """
        from paceline.comm import _power_sgd
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
        _power_sgd.orthonormal = _power_sgd.orthonormal_by_operators
        ours = trained(True)
        for number, (one, other) in enumerate(zip(ours, theirs)):
            assert one.isfinite().all() == other.isfinite().all() == (number != 4), number
            if number != 4:
                assert torch.allclose(one, other, rtol=2e-3, atol=1e-6), (number, (one - other).abs().max())
        matrix = torch.randn(100, 3)
        matrix[:, 1] = 0
        q = _power_sgd.orthonormal_by_operators(matrix)
        assert not q[:, 1].any() and torch.allclose(q.t() @ q, torch.diag(torch.tensor([1.0, 0, 1])), atol=1e-6)
""",
        ranks=4,
    )


def test_hosts_of_different_sizes_and_groups_of_some_ranks(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        MODELS
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
        # Two groups of some of the job's ranks. The ranks of a group make its sub-groups alone.
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
""",
        ranks=5,
    )
