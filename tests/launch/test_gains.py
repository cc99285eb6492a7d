# SPDX-License-Identifier: Apache-2.0
"""What the tuner of rank 0 finds reaches the job's metrics, its log and the end of `paceline run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from local import run_of
from ports import free_port

# The change that is tried stands for the compiler: steps wait for less time with it.
SCRIPT = """
import os, time, urllib.request
import torch
from paceline.tune import _report, _tuner

class Quicker:
    name, failed, on, proved = "compile", "", False, False
    def observe(self): pass
    def why_not(self): return ""
    def use(self, on): self.on = on
    def drop(self): self.on = False
    def about(self): return ""

change = Quicker()
_report.install()
_report.switch = "on"
_tuner.drive(_tuner.Tuner(change, 60.0, _tuner.after()))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())

def metrics():
    with urllib.request.urlopen(os.environ["METRICS"], timeout=10) as answer:
        return [line for line in answer.read().decode().splitlines() if "job_effect_gain" in line]

end = time.monotonic() + 60
while time.monotonic() < end:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    time.sleep(0.01 if change.on else 0.03)
    optimizer.step()
    if _report._seen and (shown := metrics()):
        print(shown)
        break
"""


def test_a_gain_reaches_the_metrics_and_the_jobs_end(build: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    port = free_port()
    command = run_of(
        build,
        tmp_path,
        [sys.executable, str(tmp_path / "train.py")],
        {"PACELINE_TUNE_AFTER": "0", "METRICS": f"http://127.0.0.1:{port}/metrics"},
        acceleration={"compile": "Disabled"},
    )
    done = subprocess.run(
        [*command, "--metrics-listen", f"127.0.0.1:{port}"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    metric = re.search(
        r'paceline_job_effect_gain_ratio\{.*feature="compile",kept="true".*\} ([0-9.]+)',
        done.stdout,
    )
    assert metric is not None and float(metric[1]) > 0.3, done.stdout
    line = re.search(r"acceleration: optimizer kept, compile \+([0-9.]+) % \(kept\)", done.stdout)
    assert line is not None, done.stdout
    assert abs(float(line[1]) / 100 - float(metric[1])) < 0.002, "both are the tuner's verdict"


# As above; the first attempt ends with an error when it has shown what the change gains.
RESTARTED = """
import os, sys, time
import torch
from paceline.tune import _report, _signature, _tuner

class Quicker:
    name, failed, on, proved = "compile", "", False, False
    def observe(self): pass
    def why_not(self): return ""
    def use(self, on): self.on = on
    def drop(self): self.on = False
    def about(self): return ""

first = os.environ["PACELINE_ATTEMPT"] == "0"
change = Quicker()
memory = _signature.of_job("compile")
_tuner.drive(_tuner.Tuner(change, 60.0, 0.0 if first else 1e9, memory=memory))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
end = time.monotonic() + 60
while time.monotonic() < end and not _report._seen:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    time.sleep(0.01 if change.on else 0.03)
    optimizer.step()
print("seen", _report._seen)
sys.exit(first)
"""


def test_an_attempt_begins_with_what_the_one_before_has_shown(build: Path, tmp_path: Path) -> None:
    """It lies in the state folder, as in a pod, where there is no folder of a user's cache."""
    (tmp_path / "train.py").write_text(RESTARTED)
    command = run_of(
        build,
        tmp_path,
        [sys.executable, str(tmp_path / "train.py")],
        {},
        acceleration={"compile": "Disabled"},
        failurePolicy={"maxRestarts": 1, "backoff": "0s"},
    )
    homeless = {"HOME", "XDG_CACHE_HOME", "PACELINE_LEARNED_DIR"}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in homeless},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    seen = [line for line in done.stdout.splitlines() if line.startswith("[0] seen [")]
    assert len(seen) == 2, done.stdout
    assert "'kept: +" in seen[0] and "'kept in an earlier run (" in seen[1], seen
