# SPDX-License-Identifier: Apache-2.0
"""`paceline trace --local`: steps of two ranks of a running job in one file, by the real launchers
and the real PyTorch.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chrome_trace
import pytest
from local import run_of

# Trains until the file `end` exists. Rank 1 stops, or dies, if a file asks for it.
PROGRAM = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

folder = pathlib.Path(sys.argv[1])
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=8)
step = 0
go = torch.ones(1)
while True:
    for (batch,) in loader:
        step += 1
        time.sleep(0.02)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if rank == 1 and (folder / "hang").exists():
            time.sleep(600)
        if rank == 1 and (folder / "die").exists() and os.environ["PACELINE_ATTEMPT"] == "0":
            os._exit(3)
        if step == 5 and rank == 0:
            (folder / "trains").touch()
    go[0] = 0 if (folder / "end").exists() else 1
    dist.broadcast(go, 0)
    if not go[0]:
        break
dist.destroy_process_group()
"""
WITHOUT_TORCH = """
import pathlib, sys, time
import paceline

folder = pathlib.Path(sys.argv[1])
while not (folder / "end").exists():
    time.sleep(0.02)
    paceline.step()
    (folder / "trains").touch()
"""


class Job:
    """A job that `paceline run` runs in a folder of its own, and `paceline trace` of it."""

    def __init__(self, build: Path, folder: Path, program: str, **spec: Any) -> None:
        self.folder = folder
        self._paceline = build / "bin" / "paceline"
        (folder / "train.py").write_text(program)
        self._environment = {**os.environ, "TMPDIR": str(folder)}
        self._log = (folder / "log").open("w+")
        command = [sys.executable, "train.py", str(folder)]
        self._run = subprocess.Popen(
            run_of(build, folder, command, {}, **spec),
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        wait(lambda: (folder / "trains").exists() or self._run.poll() is not None, self.log)
        assert self._run.poll() is None, self.log()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._paceline, "trace", "--local", *options],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def trace(self, *options: str) -> tuple[int, str]:
        started = self.start(*options)
        output, _ = started.communicate(timeout=120)
        return started.returncode, output

    def end(self) -> int:
        (self.folder / "end").touch()
        code = self._run.wait(60)
        self._log.close()
        return code

    def kill(self) -> None:
        if self._run.poll() is None:
            self._run.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._run.wait(5)
            self._run.kill()
            self._run.wait(60)


def wait(condition: Any, show: Any, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, show()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def job(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Two replicas, so two launchers."""
    job = Job(build, tmp_path_factory.mktemp("j"), PROGRAM, replicas=2)
    try:
        yield job
        assert job.end() == 0, job.log()
    finally:
        job.kill()


def spans(events: list[chrome_trace.Event], name: str) -> dict[int, list[tuple[float, float]]]:
    """By rank, the begin and end of the events of this name."""
    found: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event["name"] == name and event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            found.setdefault(event["pid"] // 1000 - 1, []).append(span)
    return found


def test_one_file_has_the_same_steps_of_all_ranks(job: Job) -> None:
    for _ in range(3):
        code, output = job.trace("--steps", "3", "-o", "out.json.gz")
        assert code == 0, output
        told = re.search(r"out.json.gz: steps (\d+) to (\d+), 2 of 2 ranks recorded", output)
        assert told, output
        first, last = int(told[1]), int(told[2])
        document, events = chrome_trace.read(job.folder / "out.json.gz")
        # On a busy machine a rank may read the request only after its first step.
        if all(rank["firstStep"] <= first for rank in document["paceline"]["ranks"]):
            break
    assert last == first + 2
    for rank in document["paceline"]["ranks"]:
        assert rank["recorded"] and rank["firstStep"] == first, document["paceline"]
        assert rank["clockOffsetNs"] == 0, "one machine has one clock"
    tracks = set(chrome_trace.names_of(events, "process_name").values())
    for rank in (0, 1):
        assert any(re.match(rf"rank {rank} on \S+: steps$", name) for name in tracks), tracks
        # The build of Debian has no kineto, and names its one process otherwise.
        own = rf"rank {rank} on \S+: (python|CPU functions)"
        assert any(re.match(own, name) for name in tracks), tracks
    apart: dict[int, list[float]] = {0: [], 1: []}
    for number in range(first, last + 1):
        recorded = spans(events, f"ProfilerStep#{number}")
        steps = spans(events, f"step {number}")
        assert recorded.keys() == steps.keys() == {0, 1}, number
        # The ranks wait for each other in each step, so the same step has a common time.
        (a, b), (c, d) = recorded[0][0], recorded[1][0]
        assert max(a, c) < min(b, d), recorded
        for rank in (0, 1):
            apart[rank].append(abs(recorded[rank][0][1] - steps[rank][0][1]))
    # Profiler and ring agree on when a step ended. A wrong clock would show in each step, and a rank
    # that waits for a processor between the two marks only in some.
    assert all(min(each) < 5000 for each in apart.values()), apart
    assert not spans(events, f"ProfilerStep#{first - 1}")
    assert not spans(events, f"ProfilerStep#{last + 1}")
    for rank in (0, 1):
        assert len(spans(events, "Optimizer.step#SGD.step")[rank]) == 3
        assert len(spans(events, "forward")[rank]) >= 3
    chrome_trace.nested([event for event in events if event["pid"] % 1000 == 0])


def test_records_alone_need_no_profiler(job: Job) -> None:
    code, output = job.trace("--records", "--steps", "4", "-o", "records.json")
    assert code == 0 and "records.json: the last steps of 2 ranks" in output, output
    _, events = chrome_trace.read(job.folder / "records.json")
    chrome_trace.nested(events)
    steps = [event for event in events if event.get("cat") == "step"]
    assert len(steps) == 8, steps
    phases = {event["name"] for event in events if event.get("cat") == "phase"}
    assert {"forward", "backward", "optimizer"} <= phases
    assert not any(event["name"].startswith("ProfilerStep#") for event in events)


def test_a_second_trace_is_refused_by_the_name_of_the_first(job: Job) -> None:
    first = job.start("--steps", "1000", "-o", "first.json")
    assert first.stdout is not None
    line = first.stdout.readline()
    assert "are recorded" in line, line
    code, output = job.trace("-o", "second.json")
    assert code == 1 and "a trace of " in output and "is under way (1000 steps" in output, output
    assert not list(job.folder.glob("second*"))
    first.kill()
    first.wait()
    first.stdout.close()


def test_wrong_input_is_named_with_its_remedy(job: Job) -> None:
    cases = {
        ("--steps", "0"): (2, "--steps"),
        ("--steps", "1001"): (2, "1001"),
        ("other",): (2, "of the name other"),
        ("-o", "no/such/trace.json"): (2, "no/such/trace.json: No such file or directory"),
        ("--local", "-n", "ns"): (2, "excludes"),
    }
    for options, (expected, text) in cases.items():
        code, output = job.trace(*options)
        assert code == expected and text in output, (options, code, output)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("hang", r"in step \d+, phase \S+ for \d+\.\d s"),
        ("die", r"the ranks were started again meanwhile"),
    ],
)
def test_a_rank_that_is_lost_is_named(build: Path, tmp_path: Path, file: str, why: str) -> None:
    job = Job(build, tmp_path, PROGRAM, replicas=2, failurePolicy={"maxRestarts": 1})
    try:
        # More steps than are done before the file is seen, and time for the ranks to start again.
        limit = {"hang": "5", "die": "60"}[file]
        tracing = job.start("--steps", "1000", "--timeout", limit, "-o", "out.json")
        assert tracing.stdout is not None
        line = tracing.stdout.readline()
        assert "are recorded" in line, line
        (tmp_path / file).touch()
        output, _ = tracing.communicate(timeout=120)
        assert re.search(f"rank 1 on .*{why}", output), output
        _, events = chrome_trace.read(tmp_path / "out.json")
        assert any(event.get("cat") == "step" for event in events), output
    finally:
        job.kill()


def test_ranks_without_pytorch_give_their_records(build: Path, tmp_path: Path) -> None:
    framework = {"type": "Custom", "processesPerReplica": 1}
    job = Job(build, tmp_path, WITHOUT_TORCH, framework=framework)
    try:
        code, output = job.trace("--steps", "3", "-o", "out.json")
        assert code == 1 and "the program does not use PyTorch" in output, output
        _, events = chrome_trace.read(tmp_path / "out.json")
        assert sum(event.get("cat") == "step" for event in events) == 3
        assert job.end() == 0, job.log()
        code, output = job.trace("-o", "late.json")
        assert code == 2 and "no `paceline run`" in output, output
    finally:
        job.kill()
