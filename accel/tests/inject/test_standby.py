# SPDX-License-Identifier: Apache-2.0
"""A standby becomes the rank that a plain start would have made, only sooner. This file plays the
launcher (launcher/process/standbys.cpp).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rings

# Says what it finds at its first line, then trains.
PROGRAM = """
import os, sys
here = 'torch' in sys.modules
import faulthandler, json, resource, signal, stat, threading
import optional
def opened():
    found = {}
    for name in sorted(os.listdir('/proc/self/fd'), key=int):
        try:
            target = os.readlink(f'/proc/self/fd/{name}')
        except OSError:
            continue
        if int(name) > 2 and 'stacks' not in target and not target.startswith('/proc'):
            found[name] = target
    return found
facts = {
    'argv': sys.argv, 'orig': sys.orig_argv, 'path': sys.path, 'main': __name__, 'cwd': os.getcwd(),
    'flags': str(sys.flags), 'xoptions': sys._xoptions, 'environment': dict(os.environ),
    'hash': hash('paceline'), 'opened': opened(), 'stdin': os.readlink('/proc/self/fd/0'),
    'threads': threading.active_count(), 'mask': sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    'signals': [str(signal.getsignal(n)) for n in range(1, 32) if n not in (9, 19)],
    'group': os.getpgrp() == os.getpid(), 'oom': open('/proc/self/oom_score_adj').read(),
    'affinity': sorted(os.sched_getaffinity(0)), 'excepthook': sys.excepthook.__module__,
    'limits': [resource.getrlimit(n) for n in range(10)], 'stdin_text': sys.stdin.read(),
}
for name in ('PACELINE_TELEMETRY_SOCKET',):
    facts['environment'].pop(name)
import torch
facts['torch'] = [torch.__file__, torch.get_num_threads(), torch.initial_seed() != 0]
facts['random'] = len({torch.randn(1).item() for _ in range(4)})
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def steps():
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(4)).sum().backward()
        optimizer.step()
steps()
print(json.dumps({'pid': os.getpid(), 'ahead': here, 'facts': facts}), flush=True)
sys.stderr.write('ended\\n')
"""


class Launcher:
    """Starts ranks and standbys of one program, as `spawn` does."""

    def __init__(self, folder: Path, environment: dict[str, str], command: list[str]) -> None:
        self.folder = folder
        self.record = folder / "imports"
        self.environment = {**environment, "PACELINE_STANDBY_FILE": str(self.record)}
        self.command = command
        self.running: list[subprocess.Popen[str]] = []

    def start(self, **more: str) -> subprocess.Popen[str]:
        kept = [int(more[n]) for n in more if n == "PACELINE_STANDBY_SOCKET"]
        process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=kept,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def rank(self) -> dict:
        return self.result(self.start())

    def standby(self) -> tuple[subprocess.Popen[str], socket.socket, str]:
        """The process, the launcher's end of the socket, and the line that the standby says."""
        own, theirs = socket.socketpair()
        with theirs:
            process = self.start(PACELINE_STANDBY_SOCKET=str(theirs.fileno()))
        own.settimeout(120)
        said = b""
        while not said.endswith(b"\n") and (part := own.recv(4096)):
            said += part
        return process, own, said.decode()

    def go(self, launcher_end: socket.socket, **more: str) -> None:
        environment = {**self.environment, **more}
        text = "".join(f"{name}={value}\0" for name, value in environment.items())
        launcher_end.sendall(text.encode())
        launcher_end.close()

    def result(self, process: subprocess.Popen[str]) -> dict:
        out, error = process.communicate(timeout=120)
        assert (process.returncode, error) == (0, "ended\n"), (out, error)
        return json.loads(out)


Make = Callable[..., Launcher]


@pytest.fixture
def make(runtime: Path, tmp_path: Path) -> Iterator[Make]:
    made: list[Launcher] = []
    with rings.Receiver() as receiver:

        def launcher(*command: str, program: str = PROGRAM, **more: str) -> Launcher:
            (tmp_path / "train.py").write_text(program)
            (tmp_path / "optional.py").write_text("")
            environment = {**rings.environment(runtime, receiver.path), "PACELINE_ATTEMPT": "0"}
            whole = [sys.executable, *(command or ("train.py",))]
            made.append(Launcher(tmp_path, {**environment, **more}, whole))
            return made[-1]

        yield launcher
        for each in made:
            for process in each.running:
                process.kill()
                process.communicate()


@pytest.mark.parametrize(
    "command",
    [
        ("train.py", "--epochs", "2", ""),
        ("-u", "-X", "dev=0", "-X", "utf8", "-W", "ignore", "train.py", "a b"),
        ("-m", "train", "-x"),
        ("-O", "-c", "import runpy; runpy.run_path('train.py')"),
    ],
    ids=["script", "options", "module", "text"],
)
def test_the_program_finds_what_a_plain_start_gives_it(
    make: Make, command: tuple[str, ...]
) -> None:
    launcher = make(*command, PYTHONHASHSEED="7")
    first = launcher.rank()
    assert launcher.record.read_text().splitlines()[0] == str(first["pid"])
    process, end, said = launcher.standby()
    assert said.startswith("ready "), said
    _, memory = said.split()
    assert 10 << 20 < int(memory) < 1 << 30
    launcher.record.unlink()
    launcher.go(end, PACELINE_ATTEMPT="1", MASTER_PORT="29501")
    second = launcher.result(process)
    assert (first["ahead"], second["ahead"]) == (False, True)
    assert second["facts"].pop("environment") == {
        **first["facts"].pop("environment"),
        "PACELINE_ATTEMPT": "1",
        "MASTER_PORT": "29501",
    }
    assert second["facts"] == first["facts"]
    # It has told what its own standby is to import.
    assert launcher.record.read_text().splitlines()[0] == str(process.pid)
    _, end, said = launcher.standby()
    assert said.startswith("ready ")
    end.close()


def test_a_spare_goes_on_in_the_place_that_it_is_given(make: Make) -> None:
    launcher = make(RANK="7", GROUP_RANK="7", ROLE_RANK="7", PACELINE_NODE_RANK="7")
    launcher.rank()
    _, end, said = launcher.standby()
    assert said.startswith("ready "), said
    place = {"RANK": "4", "GROUP_RANK": "4", "ROLE_RANK": "4", "PACELINE_NODE_RANK": "4"}
    launcher.go(end, **place)
    told = launcher.result(launcher.running[-1])
    assert told["ahead"]
    assert {name: told["facts"]["environment"][name] for name in place} == place


def test_a_spare_does_not_import_with_what_another_rank_has_set(make: Make) -> None:
    launcher = make(program="import os\nos.environ['HF_HOME'] = '/cache/0'\n" + PROGRAM)
    launcher.rank()
    _, end, said = launcher.standby()
    assert said.startswith("ready "), said
    end.close()
    _, _, rest = launcher.record.read_text().partition("\n")
    launcher.record.write_text("0\n" + rest)  # as the launcher of a spare writes it
    _, _, said = launcher.standby()
    assert said == "unfit the program sets HF_HOME before it imports torch\n"


@pytest.mark.parametrize(
    ("environment", "touched"),
    [
        ({"PYTHONHASHSEED": "8"}, ""),
        ({"OMP_NUM_THREADS": "3"}, ""),
        ({"RANK": "0"}, ""),
        ({}, "torch"),
    ],
    ids=["hash", "threads", "rank", "library"],
)
def test_what_differs_from_a_plain_start_starts_plainly(
    make: Make, tmp_path: Path, environment: dict[str, str], touched: str
) -> None:
    library = tmp_path / "lib"
    library.mkdir()
    (library / "einops.py").write_text("")  # a library of the list that can be changed here
    launcher = make(
        program=PROGRAM.replace("import torch\n", "import einops, torch\n", 1),
        PYTHONHASHSEED="7",
    )
    launcher.environment["PYTHONPATH"] += f":{library}"
    first = launcher.rank()
    process, end, said = launcher.standby()
    assert said.startswith("ready "), said
    if touched:
        os.utime(library / "einops.py")
    launcher.go(end, **environment)
    second = launcher.result(process)
    assert (second["ahead"], second["pid"]) == (False, process.pid)
    ours, theirs = second["facts"].pop("environment"), first["facts"].pop("environment")
    assert ours == {**theirs, **environment}
    for facts in (first["facts"], second["facts"]):
        if environment:
            facts.pop("hash"), facts.pop("torch")
    assert second["facts"] == first["facts"]


def test_imports_see_the_environment_that_the_program_sets_before_them(
    make: Make, tmp_path: Path
) -> None:
    library = tmp_path / "lib"
    library.mkdir()
    (library / "einops.py").write_text("import os\nseen = os.environ.get('EINOPS')\n")
    before = "import os\nos.environ['EINOPS'] = '5'\nos.environ.pop('UNWANTED', None)\n"
    launcher = make(
        program=before
        + PROGRAM.replace(
            "import torch\n", "import torch, einops\nfacts['einops'] = einops.seen\n", 1
        ),
        UNWANTED="1",
    )
    launcher.environment["PYTHONPATH"] += f":{library}"
    assert launcher.rank()["facts"]["einops"] == "5"
    for _ in range(2):  # a standby of a rank that was a standby
        process, end, said = launcher.standby()
        assert said.startswith("ready "), said
        launcher.go(end)
        second = launcher.result(process)
        assert (second["ahead"], second["facts"]["einops"]) == (True, "5")


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("import socket\nkept = socket.socketpair()\n", "an import has opened socket:"),
        ("import subprocess\nkept = subprocess.Popen(['sleep', '60'])\n", "an import has started"),
        ("kept = open('/dev/ptmx')\n", "an import has opened /dev/p"),
        ("import sys\nsys.path.insert(0, '/elsewhere')\n", "an import has changed sys.path"),
        ("import imaplib\n", "module imaplib is from"),
        ("raise ImportError('not now') if __import__('os').path.exists('imports') else 0\n", ""),
    ],
    ids=["connection", "process", "device", "path", "module", "error"],
)
def test_an_import_that_acts_makes_no_standby(
    make: Make, tmp_path: Path, library: str, reason: str
) -> None:
    (tmp_path / "lib").mkdir()
    ran = tmp_path / "ran"
    note = f"open({str(ran)!r}, 'a').write('x')\n"
    launcher = make(program=note + PROGRAM.replace("import torch\n", "import torch, einops\n", 1))
    launcher.environment["PYTHONPATH"] += f":{tmp_path / 'lib'}"
    (tmp_path / "lib" / "einops.py").write_text("")
    launcher.rank()
    (tmp_path / "lib" / "einops.py").write_text(library)
    process, _, said = launcher.standby()
    assert said.startswith(f"unfit {reason or 'import einops: ImportError: not now'}"), said
    assert process.wait(60) == 1
    assert ran.read_text() == "x", "the program ran in the rank alone"


def test_a_standby_that_is_not_needed_ends_without_running_the_program(
    make: Make, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    launcher = make(program=f"open({str(ran)!r}, 'a').write('x')\n" + PROGRAM)
    launcher.rank()
    process, end, said = launcher.standby()
    assert said.startswith("ready ")
    end.close()
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 0
    launcher.record.write_text("not a record\n")
    process, _, said = launcher.standby()
    assert said.startswith("unfit JSONDecodeError: ") and process.wait(60) == 1
    assert ran.read_text() == "x"


def test_where_nothing_trains_nothing_is_told(make: Make) -> None:
    launcher = make(program="import torch, sys\nsys.stderr.write('ended\\n')\nprint('{}')\n")
    began = time.monotonic()
    launcher.rank()
    assert not launcher.record.exists(), f"within {time.monotonic() - began:.1f} s"
