# SPDX-License-Identifier: Apache-2.0
"""A rank records steps when its launcher asks. The test's programs play the launcher: they write
the request that the rank has mapped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import Train

PLAYED = """
import gzip, json, pathlib, struct
request = pathlib.Path(os.environ["PACELINE_TRACE_REQUEST"])
request.write_bytes(bytes(64))

def ask(sequence, start, steps):
    with request.open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<QQ", start, steps))
        file.flush()
        file.seek(0)
        file.write(struct.pack("<Q", sequence))

def state():
    for thread in threading.enumerate():
        if thread.name == "paceline-trace":
            thread.join()
    return json.loads((request.parent / "rank-0.state").read_text())

def events():
    with gzip.open(request.parent / "rank-0.json.gz") as file:
        return json.load(file)["traceEvents"]

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Slow(512), batch_size=8)
batches = iter(loader)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, next(batches)).backward()
        optimizer.step()

def files():
    return sorted(path.name for path in request.parent.glob("rank-*"))

begin, step, enter = (torch.profiler.profile.start, torch.profiler.profile.step,
                      torch.autograd.profiler.profile.__enter__)
def unpatched():
    return (torch.profiler.profile.start is begin and torch.profiler.profile.step is step
            and torch.autograd.profiler.profile.__enter__ is enter)
"""

RECORDED = """
train(3)
ask(1, 7, 2)
train(1)
assert state()["state"] == "waiting", state()
train(5)
told = state()
assert told["state"] == "done" and not told["reason"], told
assert (told["sequence"], told["firstStep"], told["steps"]) == (1, 7, 2), told
names = [event.get("name", "") for event in events()]
steps = sorted(name for name in set(names) if name.startswith("ProfilerStep#"))
assert [int(name[13:]) + told["profilerStepZero"] for name in steps] == [7, 8], (steps, told)
assert sum(name.startswith("Optimizer.step#SGD.step") for name in names) == 2, names
assert files() == ["rank-0.json.gz", "rank-0.state"], files()
assert unpatched()
# A second request of the same process.
ask(2, 12, 1)
train(6)
told = state()
assert (told["sequence"], told["state"], told["firstStep"]) == (2, "done", 12), told
"""
LATE = """
train(6)
ask(1, 3, 2)
train(6)
told = state()
assert told["state"] == "done" and told["firstStep"] == 9, told
steps = {e["name"] for e in events() if e.get("name", "").startswith("ProfilerStep#")}
assert {int(name[13:]) + told["profilerStepZero"] for name in steps} == {9, 10}, (steps, told)
"""
# A request that is older than the process, and one that is taken back.
OTHERS = """
ask(7, 2, 1)
train(5)
assert files() == [], files()
ask(8, 7, 100)
train(5)
assert state()["state"] == "recording", state()
ask(9, 0, 0)
train(3)
assert unpatched() and not torch.autograd._profiler_enabled()
assert files() == ["rank-0.state"], files()
with torch.profiler.profile() as own:
    train(1)
assert len(own.key_averages()) > 3
"""
GIVES_WAY = """
train(2)
with torch.profiler.profile() as own:
    ask(1, 4, 2)
    train(4)
assert len(own.key_averages()) > 3
assert state()["reason"] == "the program records a profile of its own", state()
ask(2, 8, 50)
train(3)
assert state()["state"] == "recording", state()
with torch.profiler.profile() as own:
    train(2)
assert len(own.key_averages()) > 3
assert state()["state"] == "failed", state()
assert state()["reason"] == "the program began a profile of its own", state()
assert unpatched()
ask(3, 13, 1)
train(4)
assert state()["state"] == "done", state()
"""
DISK_FULL = """
import resource
train(2)
ask(1, 4, 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
train(6)
told = state()
assert told["state"] == "failed", told
assert "is the disk full?" in told["reason"] or "File too large" in told["reason"], told
assert files() == ["rank-0.state"], files()
"""
WITHOUT_TORCH = """
import paceline
for _ in range(3):
    paceline.step()
ask(1, 5, 1)
torch_itself, sys.modules["torch"] = torch, None
for _ in range(4):
    paceline.step()
sys.modules["torch"] = torch_itself
assert state()["reason"] == "the program does not use PyTorch", state()
"""
QUICK = """
import timeit
from paceline._core import on_demand
train(2)
seconds = min(timeit.repeat("boundary()", globals={"boundary": on_demand.boundary},
                            number=100_000, repeat=5, timer=time.thread_time)) / 100_000
print(f"a step boundary looks for a request in {seconds * 1e9:.0f} ns")
assert on_demand.requests.words[0] == 0 and len(on_demand.requests.words) == 8
assert seconds < 1e-6, seconds
"""


@pytest.mark.parametrize(
    "program",
    [RECORDED, LATE, OTHERS, GIVES_WAY, DISK_FULL, WITHOUT_TORCH, QUICK],
    ids=["recorded", "late", "others", "gives_way", "disk_full", "without_torch", "quick"],
)
def test_a_rank_that_is_asked(train_by_fork: Train, tmp_path: Path, program: str) -> None:
    request = tmp_path / "trace" / "request"
    request.parent.mkdir()
    run = train_by_fork(PLAYED + program, PACELINE_TRACE_REQUEST=str(request))
    assert run.code == 0, run.output


def test_without_a_file_training_goes_on(train_by_fork: Train, tmp_path: Path) -> None:
    program = "model = small()\nloss_of(model, (torch.ones(2, 4), torch.ones(2))).backward()\n"
    run = train_by_fork(program, PACELINE_TRACE_REQUEST=str(tmp_path / "none"))
    assert run.code == 0 and "traces on demand are off: " in run.output, run.output
