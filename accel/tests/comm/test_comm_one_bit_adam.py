# SPDX-License-Identifier: Apache-2.0
"""The optimizer OneBitAdam: its steps, its frozen variance and its compression."""

from __future__ import annotations

from comm_programs import MODELS, passes
from programs import Train


def test_one_bit_adams_steps_stay_as_large_where_gradients_are_rare(train: Train) -> None:
    """If all gradients are equal, each update of Adam is the learning rate, however many gradients its
    variance has seen.
    """
    run = train("""
        import paceline.comm
        for restored in (False, True):
            often, rare, late = parameters = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
            make = lambda: paceline.comm.OneBitAdam(parameters, lr=1.0, eps=0.0, freeze=20)
            optimizer = make()
            for step in range(120):
                before = [float(p.detach()) for p in parameters]
                often.grad = torch.ones(1)
                rare.grad = torch.ones(1) if step >= 19 else None
                late.grad = torch.ones(1) if step >= 20 else None
                if restored and step % 40 == 30:
                    kept, optimizer = optimizer.state_dict(), make()
                    optimizer.load_state_dict(kept)
                optimizer.step()
                moved = [was - float(p.detach()) for was, p in zip(before, parameters)]
                wanted = [1.0, float(step >= 19), 0.0]
                assert all(abs(one - other) < 1e-3 for one, other in zip(moved, wanted)), (step, moved)
        assert [optimizer.state[p]["variance_steps"] for p in parameters] == [20, 1, 0]
        assert all(torch.isfinite(state["exp_avg"]).all() for state in optimizer.state.values())
        # A checkpoint of a version without this count.
        kept = optimizer.state_dict()
        for state in kept["state"].values():
            del state["variance_steps"]
        optimizer.load_state_dict(kept)
        assert [optimizer.state[p]["variance_steps"] for p in parameters] == [20, 20, 20]
""")
    assert run.code == 0, run.output


def test_one_bit_adam_is_adam_and_then_of_momentum(train: Train) -> None:
    passes(
        train,
        MODELS
        + """
        class Wide(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.a, self.b, self.silent = nn.Linear(4, 256), nn.Linear(256, 64), nn.Parameter(torch.ones(5000))
            def forward(self, x):
                return self.b(self.a(x).relu()) + 0 * self.silent.sum()
        def fit(make, hook, number, host=""):
            model = Wide()
            optimizer = make(model.parameters())
            compression = paceline.comm.OneBit(optimizer) if hook else "Disabled"
            options = {"compression": compression, "host": host}
            model = DistributedDataParallel(model, bucket_cap_mb=0.04)
            if hook:
                paceline.comm.ddp_hook(model, **options)
            states = []
            for step in range(number):
                torch.manual_seed(10 * step + rank)
                optimizer.zero_grad()
                x = torch.randn(16, 4)
                (model(x) - x.sin().repeat(1, 16)).pow(2).mean().backward()
                optimizer.step()
                states.append(torch.cat([state["exp_avg_sq"].flatten() for state in optimizer.state.values()]))
            return agreed(torch.cat([p.detach().flatten() for p in model.parameters()])), states
        one_bit = lambda freeze: lambda p: paceline.comm.OneBitAdam(p, lr=0.01, weight_decay=0.1, freeze=freeze)
        adam, _ = fit(lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), False, 6)
        ours, states = fit(one_bit(6), False, 8)
        assert torch.allclose(adam, fit(one_bit(6), False, 6)[0], rtol=1e-5, atol=1e-6)
        # The variance is frozen, and steps continue.
        assert torch.equal(states[5], states[7]) and not torch.equal(states[4], states[5]) and not torch.equal(adam, ours)
        # On one host momentum is summed exactly. A value without variance does not move.
        same, _ = fit(one_bit(6), True, 12)
        alone, _ = fit(one_bit(6), False, 12)
        assert torch.allclose(alone, same, rtol=1e-4, atol=1e-5), (alone - same).abs().max()
        signs, states = fit(one_bit(6), True, 12, host=f"host-{rank}")
        way = alone - torch.cat([p.detach().flatten() for p in Wide().parameters()])
        missed = float((signs - alone).norm() / way.norm())
        assert 0.001 < missed < 0.5 and torch.equal(states[5], states[11]), missed
        for make, said in (
            (lambda: paceline.comm.OneBitAdam(Wide().parameters(), freeze=1), "freeze is 1"),
            (lambda: paceline.comm.OneBitAdam(Wide().parameters(), betas=(1, 0)), "betas is (1, 0)"),
            (lambda: paceline.comm.OneBit(paceline.comm.OneBitAdam(
                [{"params": [nn.Parameter(torch.ones(1))]}, {"params": [nn.Parameter(torch.ones(1))], "betas": (0.5, 0.9)}])), "several betas"),
        ):
            try:
                make()
            except ValueError as error:
                assert said in str(error), error
            else:
                raise AssertionError(said)
""",
        ranks=2,
    )
