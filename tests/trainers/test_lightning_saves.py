# SPDX-License-Identifier: Apache-2.0
"""An unmodified Trainer of Lightning saves at the step that the launchers have agreed on."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import DRAIN, WARNING, run_asked, told

LAST = 8

# Arguments: the package, whether the Trainer saves, batches whose gradients accumulate, the number
# of processes.
PROGRAM = """
import importlib, sys
import torch

package, saves, batches, processes = sys.argv[1:]
lightning = importlib.import_module(package)
checkpoints = importlib.import_module(package + ".callbacks").ModelCheckpoint

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def on_train_start(self):
        print("begins at step", self.global_step, flush=True)
    def training_step(self, batch, number):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = lightning.Trainer(
    accelerator="cpu", devices=int(processes), max_steps=8, logger=False, enable_progress_bar=False,
    strategy="ddp_spawn" if int(processes) > 1 else "auto",
    accumulate_grad_batches=int(batches), enable_checkpointing=saves == "yes",
    callbacks=[checkpoints(dirpath="checkpoints")] if saves == "yes" else [],
)
if __name__ == "__main__":
    rows = torch.randn(24 * int(batches) * int(processes), 4)
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    trainer.fit(Model(), loader, ckpt_path="last" if saves == "yes" else None)
"""


def train(
    folder: Path,
    package: str = "lightning.pytorch",
    saves: str = "yes",
    batches: int = 1,
    processes: int = 1,
    step: int = 5,
    why: int = DRAIN,
) -> str:
    arguments = (package, saves, str(batches), str(processes))
    output = run_asked(folder, PROGRAM, *arguments, step=step, why=why)
    assert f"`max_steps={LAST}` reached" in output
    return output


@pytest.mark.parametrize(
    ("package", "batches"), [("lightning.pytorch", 1), ("pytorch_lightning", 3)]
)
def test_it_saves_at_the_agreed_step_and_trains_on(
    tmp_path: Path, package: str, batches: int
) -> None:
    output = train(tmp_path, package, batches=batches)
    assert (tmp_path / "checkpoints" / "last-paceline.ckpt").exists(), output
    assert told(tmp_path) == [(LAST, 6, 1)], output


def test_it_resumes_from_there(tmp_path: Path) -> None:
    assert "begins at step 0" in train(tmp_path)
    assert "begins at step 5" in train(tmp_path)


def test_all_ranks_save_at_that_step(tmp_path: Path) -> None:
    output = train(tmp_path, processes=2)
    assert (tmp_path / "checkpoints" / "last-paceline.ckpt").exists(), output
    assert told(tmp_path) == [(LAST, 6, 1), (LAST, 6, 1)], output


def test_training_that_ends_at_that_step_is_told_as_finished(tmp_path: Path) -> None:
    train(tmp_path, step=LAST, why=WARNING)
    assert (tmp_path / "checkpoints" / "last-paceline.ckpt").exists()
    assert told(tmp_path) == [(LAST + 1, LAST + 1, 1)], "it counts as a rank that has gone on"


def test_a_trainer_that_never_saves_is_left_alone(tmp_path: Path) -> None:
    train(tmp_path, saves="no")
    assert told(tmp_path) == []
