# SPDX-License-Identifier: Apache-2.0
"""An unmodified Trainer of Hugging Face saves at the step that the launchers have agreed on."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import DRAIN, WARNING, run_asked, told

AGREED = 5
LAST = 8

PROGRAM = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

tokens = torch.randint(0, 64, (16, 16))
trainer = Trainer(
    model=GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)),
    args=TrainingArguments(
        output_dir="output", use_cpu=True, max_steps=8, per_device_train_batch_size=4,
        save_strategy=sys.argv[1], save_steps=1000, report_to=[], disable_tqdm=True,
        eval_strategy="steps", eval_steps=5,
    ),
    train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
    eval_dataset=[{"input_ids": row, "labels": row} for row in tokens],
)
trainer.train(resume_from_checkpoint=len(sys.argv) > 2)
print("trained to step", trainer.state.global_step)
print("evaluated at", [one["step"] for one in trainer.state.log_history if "eval_loss" in one])
"""


def train(folder: Path, *arguments: str, step: int = AGREED, why: int = DRAIN) -> str:
    return run_asked(folder, PROGRAM, *arguments, step=step, why=why)


@pytest.mark.parametrize(("strategy", "saved"), [("steps", True), ("no", False)])
def test_a_trainer_that_saves_saves_at_the_agreed_step(
    tmp_path: Path, strategy: str, saved: bool
) -> None:
    output = train(tmp_path, strategy)
    assert f"trained to step {LAST}" in output
    assert (tmp_path / "output" / f"checkpoint-{AGREED}").exists() == saved, output
    assert told(tmp_path) == ([(LAST, AGREED + 1, 1)] if saved else []), "it trains on"


@pytest.mark.parametrize(("why", "steps"), [(DRAIN, [LAST]), (WARNING, [AGREED, LAST])])
def test_the_evaluation_at_that_step_is_left_out_only_if_a_pod_goes(
    tmp_path: Path, why: int, steps: list[int]
) -> None:
    output = train(tmp_path, "steps", why=why)
    assert (tmp_path / "output" / f"checkpoint-{AGREED}").exists(), output
    assert f"evaluated at {steps}" in output


def test_training_that_ends_at_that_step_is_told_as_finished(tmp_path: Path) -> None:
    output = train(tmp_path, "steps", step=LAST, why=WARNING)
    assert (tmp_path / "output" / f"checkpoint-{LAST}").exists(), output
    assert told(tmp_path) == [(LAST + 1, LAST + 1, 1)], "it counts as a rank that has gone on"


def test_it_resumes_from_there(tmp_path: Path) -> None:
    train(tmp_path, "steps")
    (tmp_path / "output" / f"checkpoint-{LAST}").rename(tmp_path / "the last one")
    assert f"trained to step {LAST}" in train(tmp_path, "steps", "resume")
