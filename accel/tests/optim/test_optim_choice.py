# SPDX-License-Identifier: Apache-2.0
"""fused=True on the CPU: ours is tried beside PyTorch's step, and stays where steps get quicker."""

from __future__ import annotations

import pytest
import torch
from programs import Train

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4),
    reason="a PyTorch without a fused step on the CPU",
)

# A clock of the test's own: the tuner measures what `cost` says of each step.
PROGRAM = """
        import paceline, math
        from paceline.optim import _choice, _report
        from paceline.tune import _tuner
        now = [0.0]
        original = _tuner.Tuner.__init__
        _tuner.Tuner.__init__ = lambda self, *a, **k: original(self, *a, **{**k, "clock": lambda: now[0]})
        def fit(gain, steps, kind=torch.optim.AdamW, **options):
            model, whole = small(), small()
            optimizer = kind(model.parameters(), lr=0.01, fused=True, **options)
            reference = kind(whole.parameters(), lr=0.01, fused=True, **options)
            reference._paceline_reference = True
            ways = []
            for number in range(steps):
                torch.manual_seed(number)
                batch = torch.randn(8, 4), torch.randn(8)
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                was_ours = _choice.choice.ours
                now[0] += 0.1 / (gain if was_ours else 1.0) * (1 + 0.02 * math.sin(number))
                optimizer.step()
                outcome = _report.outcome_of(optimizer)
                assert bool(outcome.fused) is was_ours, (number, vars(outcome))
                ways.append(was_ours)
                for p, q in zip(model.parameters(), whole.parameters()):
                    q.grad = p.grad.clone()
                by_torch(reference)
                with torch.no_grad():
                    for p, q in zip(model.parameters(), whole.parameters()):
                        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)
                        for key, value in reference.state[q].items():
                            torch.testing.assert_close(optimizer.state[p][key], value, rtol=1e-4, atol=1e-6)
                            assert optimizer.state[p][key].dtype is value.dtype
            return ways
        def by_torch(optimizer):
            step = type(optimizer).step
            while hasattr(step, "__wrapped__"):
                step = step.__wrapped__
            with torch.enable_grad():
                step(optimizer)
        def told():
            return paceline.explain(as_dict=True)["fused optimizers"]["seen"][0]
"""
ASKED = {"PACELINE_OPTIMIZER": "Auto", "OMP_NUM_THREADS": "1", "PACELINE_TUNE_AFTER": "1"}


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_ours_stays_where_steps_get_quicker(train_by_fork: Train, kind: str) -> None:
    options = ", momentum=0.9" if kind == "SGD" else ""
    run = train_by_fork(
        PROGRAM
        + f"""
        ways = fit(1.1, 260, torch.optim.{kind}{options})
        assert not any(ways[:16]) and False in ways[40:60] and True in ways[40:60]
        assert all(ways[-4:]), ways
        seen = told()
        assert "ours: kept: +" in seen["text"] and abs(seen["gain"] - 0.1) < 0.02, seen
        print("reached the end")
        """,
        **ASKED,
    )
    assert run.code == 0 and "reached the end" in run.output, run.output
    assert "paceline: optimizer: kept: +" in run.output, run.output


def test_torchs_stays_where_ours_is_no_quicker(train_by_fork: Train) -> None:
    run = train_by_fork(
        PROGRAM
        + """
        ways = fit(0.95, 260)
        assert True in ways and not any(ways[-100:]), ways
        assert ways.count(True) < 60, ways.count(True)
        seen = told()
        assert seen["state"] == "off" and "fused=True on the CPU; ours: rolled back: -" in seen["reason"], seen
        print("reached the end")
        """,
        **ASKED,
    )
    assert run.code == 0 and "reached the end" in run.output, run.output


def test_a_short_program_keeps_torchs(train_by_fork: Train) -> None:
    run = train_by_fork(
        PROGRAM
        + """
        assert not any(fit(1.1, 30))
        assert "ours: it is tried after 10 s of training" in told()["reason"], told()
        print("reached the end")
        """,
        **{**ASKED, "PACELINE_TUNE_AFTER": "300"},
    )
    assert run.code == 0 and "reached the end" in run.output, run.output


def test_ranks_switch_together(train_by_fork: Train) -> None:
    run = train_by_fork(
        PROGRAM
        + """
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(small())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        ways = []
        for number in range(240):
            torch.manual_seed(2 * number + dist.get_rank())
            optimizer.zero_grad()
            loss_of(model, (torch.randn(8, 4), torch.randn(8))).backward()
            ways.append(_choice.choice.ours)
            # The ranks measure different times.
            now[0] += 0.1 / (1.2 if ways[-1] else 1.0) * (1 + 0.05 * math.sin(number + dist.get_rank()))
            optimizer.step()
        everyones = [None, None]
        dist.all_gather_object(everyones, ways)
        assert everyones[0] == everyones[1] and True in ways and all(ways[-4:]), ways
        values = torch.cat([p.detach().flatten() for p in model.parameters()])
        other = values.clone()
        dist.broadcast(other, 0)
        assert torch.equal(values, other), "ranks differ"
        print("reached the end")
        del model, optimizer
        dist.destroy_process_group()
        """,
        ranks=2,
        **ASKED,
    )
    assert run.code == 0 and run.output.count("reached the end") == 2, run.output


def test_an_optimizer_that_ours_cannot_step_is_not_tried(train_by_fork: Train) -> None:
    run = train_by_fork(
        PROGRAM
        + """
        leaf = torch.ones(3, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.AdamW([leaf], fused=True)
        for _ in range(3):
            leaf.grad = torch.ones_like(leaf)
            optimizer.step()
        assert told()["reason"] == "float64 gradients of float64 parameters", told()
        assert not _choice.choice.is_able
        print("reached the end")
        """,
        **ASKED,
    )
    assert run.code == 0 and "reached the end" in run.output, run.output
