# SPDX-License-Identifier: Apache-2.0
"""`paceline run train.py`: a script without a job file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
import torch
print("given", sys.argv[1:], [name for name in ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
      if name in os.environ], flush=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
for inputs in torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=2):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
if "fail" in sys.argv:
    sys.exit(7)
"""


def run(build: Path, folder: Path, *words: str, script: str = SCRIPT) -> tuple[int, str]:
    """Exit code and output, with this test's interpreter as python3."""
    (folder / "train.py").write_text(script)
    (folder / "python3").unlink(missing_ok=True)
    (folder / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        [build / "bin" / "paceline", "run", *words],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LOCAL_RANK": "5"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    return done.returncode, done.stdout


def test_one_process_starts_as_plain_python_does(build: Path, tmp_path: Path) -> None:
    code, output = run(build, tmp_path, "train.py", "--lr", "1", "-n", "3", "$(HOME)")
    assert code == 0, output
    assert "[0] given ['--lr', '1', '-n', '3', '$(HOME)'] []" in output, output
    assert "steps               32" in output, output
    acted = output.partition("acceleration of rank 0")[2]
    assert "AdamW: 2 tensors fused on the CPU" in acted, output
    assert "mixed precision" not in acted, "nobody asked for it"


def test_several_processes_are_ranks(build: Path, tmp_path: Path) -> None:
    code, output = run(build, tmp_path, "-n", "2", "--numerics", "Bitwise", "train.py")
    assert code == 0, output
    for rank in (0, 1):
        assert f"[{rank}] given [] ['LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR']" in output, output


def test_a_failure_is_the_scripts_and_is_not_repeated(build: Path, tmp_path: Path) -> None:
    code, output = run(build, tmp_path, "train.py", "fail")
    assert code == 7, output
    assert output.count("given") == 1, output


def test_a_comparison_takes_turns(build: Path, tmp_path: Path) -> None:
    script = SCRIPT.replace("64, 4", "128, 4").replace(
        'print("given"', 'print("fused", os.environ.get("PACELINE_OPTIMIZER"), "given"'
    )
    script = script.replace("zero_grad()", "zero_grad(); time.sleep(0.02)")
    code, output = run(
        build, tmp_path, "--compare", "--pairs", "3", "train.py", script=f"import time{script}"
    )
    assert code == 0, output
    seen = re.findall(r"^\[0\] fused (\w+)", output, re.MULTILINE)
    assert seen == ["None", "Auto", "Auto", "None", "None", "Auto"], output
    pairs = re.findall(r"^ +\d +([\d.]+) ms +([\d.]+) ms", output, re.MULTILINE)
    assert len(pairs) == 3, output
    for seconds in (float(figure) for pair in pairs for figure in pair):
        assert seconds > 20, output
    assert "95 % interval" in output, output


def test_runs_end_after_the_steps_that_were_asked_for(build: Path, tmp_path: Path) -> None:
    script = SCRIPT.replace("64, 4", "100000, 4").replace(
        "zero_grad()", "zero_grad(); time.sleep(0.01)"
    )
    code, output = run(build, tmp_path, "--steps", "30", "train.py", script=f"import time{script}")
    assert code == 0, output
    assert "train: Stopped" in output, output
    steps = int(output.partition("  steps ")[2].split()[0])
    assert 30 <= steps < 1000, output


def test_too_few_steps_are_not_compared(build: Path, tmp_path: Path) -> None:
    script = SCRIPT.replace("64, 4", "16, 4")
    code, output = run(build, tmp_path, "--compare", "train.py", script=script)
    assert code == 1, output
    assert "8 training steps were seen" in output, output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a script"),
        (["--bogus", "train.py"], "there is no option --bogus"),
        (["-f", "job.yaml", "train.py"], "-f job.yaml has a command of its own"),
        (["-n", "0", "train.py"], "not in range 1"),
        (["--pairs", "4", "train.py"], "--pairs requires --compare"),
        (["--numerics", "Exact", "train.py"], "Exact not in {Bitwise,Reordered,Lossy}"),
        (["torchrun", "--nproc-per-node=4", "train.py"], "--nproc-per-node=4 contradicts"),
    ],
)
def test_wrong_words_are_told(build: Path, tmp_path: Path, words: list[str], said: str) -> None:
    code, output = run(build, tmp_path, *words)
    assert code == 2, output
    assert said in output, output
