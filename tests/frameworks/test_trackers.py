# SPDX-License-Identifier: Apache-2.0
"""`paceline.log_to` with the real MLflow, tensorboardX and W&B. MLflow stores in a folder, and W&B
is offline: its server cannot be reached here.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import json, time
import mlflow, wandb
import paceline

run = mlflow.start_run()
row = wandb.init(project="paceline", mode="offline")
for number in range(60):
    time.sleep(0.05)
    paceline.step(500 + number)
    if number % 10 == 0:
        row.log({"loss": 1.0 / (number + 1)})
row.log({"loss": 0.0})
found = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "paceline/step_seconds")
summary = {key: row.summary[key] for key in row.summary.keys()}
print("told", json.dumps({"mlflow": found, "steps": [one.step for one in history],
                          "wandb": summary, "rows": row.step}))
"""
BEGIN = """
import paceline
for name in ("mlflow", "wandb"):
    paceline.log_to(name, every=1)
paceline.log_to("tensorboard", folder="events", every=1)
"""


def test_the_real_trackers_get_step_times(build: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        [ROOT / "scripts" / "framework-env", "trackers"], check=True, capture_output=True, text=True
    )
    interpreter = made.stdout.splitlines()[-1]
    (tmp_path / "train.py").write_text(BEGIN + PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": str(build / "runtime" / "python"),
        "MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "HOME": str(tmp_path),
        "RANK": "0",
    }
    run = subprocess.run(
        [interpreter, "train.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert run.returncode == 0 and "paceline: " not in run.stdout, run.stdout
    told = json.loads(run.stdout.partition("told ")[2].splitlines()[0])
    for found in (told["mlflow"], told["wandb"]):
        assert 0.04 < found["paceline/step_seconds"] < 0.5, told
        assert 0.99 < found["paceline/share/unattributed"] <= 1, "steps without phases"
    assert len(told["steps"]) >= 2 and told["steps"] == sorted(set(told["steps"])), told
    assert 500 <= told["steps"][0] < 560
    assert told["wandb"]["paceline/step"] >= 500
    assert told["rows"] == 7, "the program's own steps of W&B"
    events = b"".join(path.read_bytes() for path in (tmp_path / "events").glob("events.*"))
    assert b"paceline/step_seconds" in events
