# SPDX-License-Identifier: Apache-2.0
"""A run that its user ends by hand, twice: the launcher is killed before it can report."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from local import run_of

SCRIPT = """
import signal, time
import torch
signal.signal(signal.SIGTERM, signal.SIG_IGN)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs in torch.utils.data.DataLoader(torch.randn(1 << 16, 4), batch_size=1):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""


def test_what_was_seen_of_a_killed_run_is_told(build: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = run_of(build, tmp_path, [sys.executable, str(tmp_path / "train.py")], {})
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if re.search(r": step [1-9]", line):
                process.send_signal(signal.SIGINT)
            if "once more to kill them" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 128 + signal.SIGINT, output
    assert re.search(r"^local: Terminated", output, re.MULTILINE), output
    assert re.search(r"^ *steps +[1-9]", output, re.MULTILINE), output
