# SPDX-License-Identifier: Apache-2.0
"""What is predicted before anything is tried: the models as tables, and the steps behind them."""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import Train
from torch import nn

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)

from paceline._core import predict, predictions, records, reports  # noqa: E402
from paceline._core.predict import Prediction, Program  # noqa: E402
from paceline._core.records import Breakdown, Step  # noqa: E402

SMALL = Program(tensors=100, elements=1_000_000, convolutions=0.0, single_pass=False)
LARGE = SMALL._replace(elements=30_000_000)


def steps(seconds: float = 0.1, **shares: float) -> Breakdown:
    return Breakdown(seconds, {**dict.fromkeys(records.PHASES, 0.0), **shares}, 64)


def percent(found: Prediction) -> tuple[int, int, int]:
    return round(found.gain * 100), round(found.low * 100), round(found.high * 100)


@pytest.mark.parametrize(
    ("share", "ratio", "gain"),
    [(0.0, 4.0, 0.0), (0.5, 2.0, 1 / 3), (1.0, 2.0, 1.0), (0.5, math.inf, 1.0), (0.2, 0.5, -1 / 6)],
)
def test_a_share_that_gets_quicker_gains_what_amdahl_says(
    share: float, ratio: float, gain: float
) -> None:
    assert predict.quicker(share, ratio) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("found", "program", "acts", "said"),
    [
        (steps(optimizer=0.0), SMALL, False, (0, 0, 0)),
        (steps(optimizer=0.2), SMALL, False, (14, 7, 19)),
        (steps(optimizer=0.2), LARGE, False, (18, 14, 19)),
        # What takes 0.2 of a step now took half of it before.
        (steps(optimizer=0.2), LARGE, True, (60, 43, 65)),
        (steps(optimizer=0.2), SMALL._replace(single_pass=True), False, (0, -1, 3)),
    ],
)
def test_optimizer(
    found: Breakdown, program: Program, acts: bool, said: tuple[int, int, int]
) -> None:
    assert percent(predict.optimizer(found, program, acts)) == said


@pytest.mark.parametrize(
    ("share", "one_host", "acts", "said"),
    [
        (0.0, True, False, (0, 0, 0)),
        (0.4, True, False, (25, 0, 39)),
        (0.4, False, False, (12, 0, 16)),
        (0.4, True, True, (40, 0, 66)),
    ],
)
def test_gradients(share: float, one_host: bool, acts: bool, said: tuple[int, int, int]) -> None:
    assert percent(predict.gradients(steps(comm_exposed=share), one_host, acts)) == said


@pytest.mark.parametrize(
    ("seconds", "program", "said"),
    [
        (0.03, SMALL, (26, -4, 43)),  # 0.3 ms for each tensor: small operations
        (0.30, SMALL, (15, -14, 49)),
        (0.30, SMALL._replace(convolutions=0.9), (4, -26, 18)),
        (0.03, SMALL._replace(tensors=0), (15, -14, 49)),
    ],
)
def test_compiled(seconds: float, program: Program, said: tuple[int, int, int]) -> None:
    found = steps(seconds, forward=0.3, backward=0.5)
    assert percent(predict.compiled(found, program)) == said


@pytest.mark.parametrize(
    ("waited", "rest", "gain", "said"),
    [
        (0.01, 0.01, 0.8, (80, 40, 100)),
        (0.01, 0.01, 0.2, (20, 10, 25)),
        (0.01, 0.01, 3.0, (100, 50, 100)),  # no more than the wait, whatever a model says
        (0.01, 0.0, 0.5, (50, 25, 62)),
        (0.0, 0.01, 0.5, (0, 0, 0)),
        (0.01, 0.01, -0.1, (0, 0, 0)),
    ],
)
def test_workers(waited: float, rest: float, gain: float, said: tuple[int, int, int]) -> None:
    assert percent(predict.workers(waited, rest, gain)) == said


def test_a_loop_without_a_loader_has_its_forward_pass_where_nothing_is_marked() -> None:
    marked = predict.compiled(steps(forward=0.3, backward=0.5, unattributed=0.1), SMALL)
    unmarked = predict.compiled(steps(unattributed=0.3, backward=0.5), SMALL)
    assert marked == unmarked


def test_no_prediction_exceeds_its_bound() -> None:
    for share in (0.0, 0.01, 0.3, 0.7, 0.99, 1.0, 1.5):
        found = steps(optimizer=share, comm_exposed=share, forward=share)
        for acts in (False, True):
            for one in (
                predict.optimizer(found, SMALL, acts),
                predict.optimizer(found, LARGE, acts),
                predict.gradients(found, True, acts),
                predict.compiled(found, SMALL),
                predict.workers(share, 1.0, 1e9),
            ):
                assert one.low <= one.gain <= one.high <= one.bound < math.inf, one
                assert one.bound == pytest.approx(1 / (1 - one.share) - 1)


def test_a_prediction_names_what_bounds_it() -> None:
    said = str(predict.optimizer(steps(optimizer=0.2), SMALL, False))
    assert said == (
        "predicted +14 % (+7 to +19): the optimizer takes 20 % of a step, so +25 % is the most"
    )


# -- the steps


def step(wall: float, optimizer: float = 0.0, samples: int | None = 8) -> Step:
    phases = tuple(optimizer if name == "optimizer" else 0.0 for name in records.PHASES)
    return Step(wall, phases, samples)


def test_shares_are_those_of_usual_steps() -> None:
    usual = [step(0.1, 0.02)] * 10
    found = records.breakdown([*usual, step(5.0)])  # an evaluation
    assert found is not None and found.steps == 10
    assert found.seconds == pytest.approx(0.1)
    assert found.shares["optimizer"] == pytest.approx(0.2)
    assert records.breakdown(usual[:7]) is None
    assert records.breakdown([step(0.0)] * 8) is None


def test_the_size_of_a_batch_is_the_usual_one() -> None:
    assert records.batch([step(1.0), step(1.0), step(1.0, samples=3)]) == 8
    assert records.batch([step(1.0, samples=None)]) is None
    assert records.batch([]) is None


def record(number: int, kind: int = 1, flags: int = 0, valid: int = 1 << 1 | 1 << 12) -> bytes:
    raw = bytearray(512)
    struct.pack_into("<QHHB", raw, 0, number + 1, 1, 512, kind)
    struct.pack_into("<QIIQ", raw, 40, (number + 1) * 1_000_000_000, 0, 1, flags)
    struct.pack_into("<16Q", raw, 64, *(phase * 1_000_000 for phase in range(16)))
    struct.pack_into("<Q", raw, 384, 32)
    struct.pack_into("<Q", raw, 448, valid)
    return bytes(raw)


def test_records_are_read_from_a_ring() -> None:
    """Not: records of other kinds, of what follows the last step, or being written."""
    slots = [bytes(512)] * 1024
    for number in range(1020, 1030):
        slots[number % 1024] = record(number)
    slots[1021] = record(1021, kind=2)
    slots[1022] = record(1022, flags=1 << 7)
    slots[1023] = record(5)
    slots[0] = record(1024, valid=0)
    slots[1] = record(1025, valid=1 << 1)
    header = bytearray(4096)
    struct.pack_into("<Q", header, 1024, 1030)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(header) + b"".join(slots))
        file.flush()
        found = records.read(file.fileno(), most=10)
    assert [one.wall for one in found] == [1021, 1026, 1027, 1028, 1029, 1030]
    assert found[0].phases == pytest.approx((0.0, 0.002, 0.003, 0.004, 0.005, 0.015))
    assert [one.samples for one in found[:3]] == [32, None, 32]


def test_what_an_optimizer_updates() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Linear(3, 4))
    model[1].bias.requires_grad_(False)
    program = predictions.program_of(torch.optim.SGD(model.parameters(), lr=0.1))
    assert program == Program(2, 108 + 12, 0.9, False)


def test_each_change_is_predicted_from_the_steps_before_its_own_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An optimizer's trial comes first, and compiling is predicted from later steps."""
    monkeypatch.setattr(predictions, "_held", {})
    monkeypatch.setattr(predictions, "_program", Program(100, 1000, 0.0, False))
    monkeypatch.setattr(predictions.trace, "device_kind", predictions.CPU)
    monkeypatch.setattr(predictions.trace, "steps", lambda: None)
    for change in ("optimizer", "compile"):
        monkeypatch.setattr(records, "breakdown", lambda _, change=change: change)
        predictions.hold(change)
        predictions.hold(change)
    seen: dict[str, str] = {}
    monkeypatch.setattr(predict, "compiled", lambda of, _: seen.setdefault("compile", of))
    monkeypatch.setattr(predict, "optimizer", lambda of, *_: seen.setdefault("optimizer", of))
    features: dict[str, Any] = {
        each.name: {"seen": []} for each in (reports.WORKERS, reports.OPTIMIZERS)
    }
    predictions.found(features)
    assert seen == {"compile": "compile", "optimizer": "optimizer"}


PROGRAM = """
import json
model = small()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(TensorDataset(torch.randn(160, 4), torch.zeros(160)), batch_size=8):
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    time.sleep(0.05)
    optimizer.step()
import paceline
for _ in range(1000):  # another thread writes the records
    told = paceline.explain(as_dict=True)
    if told["compile"]["predicted"]:
        break
    time.sleep(0.01)
print("told", json.dumps(told))
from paceline._core import effects
print("effects", effects.found())
print(paceline.explain())
"""


def test_a_program_is_told_what_its_steps_foretell(train_by_fork: Train) -> None:
    done = train_by_fork(PROGRAM, PACELINE_OPTIMIZER="Auto")
    assert done.code == 0, done.output
    told = json.loads(done.output.partition("told ")[2].partition("\n")[0])
    # Fifty milliseconds of sleep before the optimizer's step are nobody's share.
    for name in ("compile", "fused optimizers"):
        predicted = told[name]["predicted"]
        assert 0 < predicted["share"] < 0.6, told[name]
        assert predicted["low"] <= predicted["gain"] <= predicted["high"] < 1
    assert told["communication"]["predicted"] is None, "one rank has nobody to wait for"
    assert told["mixed precision"]["predicted"] is None, "only a GPU gains from it"
    effects = done.output.partition("effects ")[2].partition("\n")[0]
    assert "; predicted +" in effects, effects
    assert "  predicted " in done.output and " of a step, so +" in done.output
