# SPDX-License-Identifier: Apache-2.0
"""A process that can be asked where it is, and one that uses the signal itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"
BEGIN = "from paceline._inject import stacks\nstacks.install()\n"


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": str(PYTHON)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def stack_file(pid: int) -> Path | None:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if "paceline-stacks" in os.readlink(entry):
            return entry
    return None


def catches(pid: int, signal: int = 61) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal - 1) & 1)
    return False


def test_a_process_that_hangs_tells_where_it_is() -> None:
    program = BEGIN + (
        "import threading\n"
        "def hang():\n    lock = threading.Lock(); lock.acquire()\n    print('ready', flush=True)\n"
        "    lock.acquire()\n"
        "hang()\n"
    )
    with start(program) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        file = stack_file(process.pid)
        assert file is not None and int(file.name) >= 512 and catches(process.pid)
        for _ in range(2):  # the launcher empties the file, and asks again
            os.truncate(file, 0)
            os.kill(process.pid, 61)
            limit = time.monotonic() + 10
            while "in <module>" not in (text := file.read_text()):
                assert time.monotonic() < limit, text
                time.sleep(0.01)
            assert "in hang" in text and "\0" not in text
        process.kill()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_program_that_uses_the_signal_keeps_it(before: bool) -> None:
    own = "import signal\nsignal.signal(61, lambda *_: print('mine', flush=True))\n"
    wait = "print('ready', flush=True)\nimport sys\nsys.stdin.readline()\n"
    with start((own + BEGIN if before else BEGIN + own) + wait) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        assert stack_file(process.pid) is None, "so the launcher never signals it"
        os.kill(process.pid, 61)
        assert process.stdout.readline() == "mine\n"
        process.stdin.write("\n")


def test_other_signals_are_set_as_ever() -> None:
    program = BEGIN + (
        "import signal\n"
        "assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN\n"
        "import pickle\n"
        "assert pickle.loads(pickle.dumps(signal.signal)) is signal.signal\n"
    )
    with start(program) as process:
        assert process.communicate(timeout=20)[0] == ""
        assert process.returncode == 0


def test_a_child_that_another_program_replaces_is_not_asked() -> None:
    program = BEGIN + (
        "import os, sys\nprint('ready', flush=True)\nos.execv('/bin/cat', ['cat'])\n"
    )
    with start(program) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("there\n")
        process.stdin.flush()
        assert process.stdout.readline() == "there\n", "cat runs"
        assert stack_file(process.pid) is None and not catches(process.pid)
        process.stdin.close()
