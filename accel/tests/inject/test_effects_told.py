# SPDX-License-Identifier: Apache-2.0
"""What rank 0's process says of the features that act in it, for the launcher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from programs import Train

TRAIN = """
model = small()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(160, 4), torch.zeros(160)), batch_size=8, num_workers=1)
for batch in loader:
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    optimizer.step()
"""
TOLD = "\nprint('told', open(os.environ['PACELINE_EFFECTS_FILE']).read())\n"
ASKED = {"PACELINE_OPTIMIZER": "Auto", "PACELINE_LOADER": "Auto", "PACELINE_COMPILE": "Auto"}


def effects(text: str) -> dict[str, dict[str, Any]]:
    document = json.loads(text)
    assert document["version"] == 1
    return {effect.pop("feature"): effect for effect in document["effects"]}


def test_what_acts_is_told_while_it_trains_and_at_the_end(
    train_by_fork: Train, tmp_path: Path
) -> None:
    file = tmp_path / "effects.json"
    run = train_by_fork(TRAIN + TOLD, PACELINE_EFFECTS_FILE=str(file), **ASKED)
    assert run.code == 0, run.output
    meanwhile = effects(run.output.partition("told ")[2])
    for told in (meanwhile, effects(file.read_text())):
        assert told["optimizer"]["kept"] and "fused on the CPU" in told["optimizer"]["reason"]
        assert told["loader"]["kept"] and "loader of" in told["loader"]["reason"]
        assert "gain" not in told["optimizer"], "it was not measured"
        # A trial that has not begun is no verdict; some PyTorch cannot compile at all.
        assert "compile" not in told or "has no torch.nn" in told["compile"]["reason"]
    assert "20 steps by the library" in effects(file.read_text())["optimizer"]["reason"]
    assert [path.name for path in tmp_path.iterdir() if "effects" in path.name] == [file.name]


IN_A_FUNCTION = """
def main():
    model = nn.parallel.DistributedDataParallel(small())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        loss_of(model, (torch.randn(8, 4), torch.zeros(8))).backward()
        optimizer.step()

dist.init_process_group("gloo")
main()
dist.destroy_process_group()
"""


def test_what_acted_is_told_at_the_end_though_its_objects_are_gone(
    train_by_fork: Train, tmp_path: Path
) -> None:
    file = tmp_path / "effects.json"
    asked = {**ASKED, "PACELINE_COMMUNICATION": "Auto"}
    run = train_by_fork(IN_A_FUNCTION, ranks=2, PACELINE_EFFECTS_FILE=str(file), **asked)
    assert run.code == 0, run.output
    told = effects(file.read_text())
    assert told["communication"]["kept"] and "2 ranks" in told["communication"]["reason"], told
    assert told["optimizer"]["kept"], told


def test_a_feature_that_is_left_has_its_reason(train_by_fork: Train, tmp_path: Path) -> None:
    file = tmp_path / "effects.json"
    asked = {**ASKED, "PACELINE_NUMERICS": "Bitwise"}
    run = train_by_fork(TRAIN, PACELINE_EFFECTS_FILE=str(file), **asked)
    assert run.code == 0, run.output
    told = effects(file.read_text())
    assert told["loader"]["kept"]
    assert not told["optimizer"]["kept"] and "Bitwise" in told["optimizer"]["reason"]


def test_only_the_training_process_of_rank_0_tells(train_by_fork: Train, tmp_path: Path) -> None:
    file = tmp_path / "effects.json"
    leaves = "if os.environ['RANK'] == '0': sys.exit()\n" + TRAIN
    for program, ranks in ((leaves, 2), ("print(small())", 1)):
        run = train_by_fork(program, ranks=ranks, PACELINE_EFFECTS_FILE=str(file), **ASKED)
        assert run.code == 0, run.output
        assert not file.exists(), program


def test_a_folder_that_is_not_there_ends_no_program(train_by_fork: Train, tmp_path: Path) -> None:
    run = train_by_fork(TRAIN, PACELINE_EFFECTS_FILE=str(tmp_path / "gone" / "file"), **ASKED)
    assert run.code == 0, run.output
    assert "gone" not in run.output


VERDICTS = """
from paceline._core import effects, reports
from paceline.tune import _report
from paceline.tune._pairs import Gain
from paceline.tune._trial import Verdict

_report.install()
_report.switch = "on"
assert effects.found() == [], effects.found()
_report.waits("it is tried after 300 s of training")
assert effects.found() == []
_report.judged("compile", Verdict(True, "+21.4 %", Gain(0.21434, 0.18, 0.25, 6), 31.2), "")
(effect,) = effects.found()
assert effect["kept"] and effect["gain"] == 0.21434 and effect["feature"] == "compile", effect
_report.judged("compile", Verdict(False, "é" * 300, None, 0.0), "")
(effect,) = effects.found()
assert not effect["kept"] and "gain" not in effect
assert 250 < len(effect["reason"].encode()) <= 256
reports.register(reports.PRECISION, lambda: reports.Status("on (TF32)", []))
assert {"feature": "precision", "kept": True, "reason": "TF32"} in effects.found()
"""


def test_a_verdict_has_its_gain_and_one_without_a_measurement_has_none(
    train_by_fork: Train,
) -> None:
    run = train_by_fork(VERDICTS)
    assert run.code == 0, run.output
