# SPDX-License-Identifier: Apache-2.0
"""Python's part in kernel windows: PyTorch's profiler gets CUPTI to itself, and explain() says what
the windows did. A fake CUPTI stands in for the one that PyTorch for GPUs has mapped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import Train

TITLE = "kernel windows: what the GPU does in a few steps of every 500: "

# The driver calls InitializeInjection in the first cuInit().
DRIVER = """
import ctypes, paceline
fake = ctypes.CDLL(os.environ["FAKE"])
library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
assert library.InitializeInjection() == 1
from paceline._core import windows

class State(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in
                ("subscribers", "enabled", "serializing", "finalized", "enables", "lent", "latency")]

class Work(ctypes.Structure):
    _fields_ = [("work", ctypes.c_int), ("name", ctypes.c_char_p), ("start", ctypes.c_uint64),
                ("end", ctypes.c_uint64), ("queued", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("copy_kind", ctypes.c_int), ("device", ctypes.c_uint32), ("stream", ctypes.c_uint32)]

def launch():
    now = time.monotonic_ns()
    fake.fake_cupti_play(ctypes.byref(Work(10, b"gemm", now, now + 1000)))

def fakes():
    state = State()
    fake.fake_cupti_state(ctypes.byref(state))
    return state

def report():
    found = windows._Report(size=ctypes.sizeof(windows._Report))
    library.paceline_window_report(ctypes.byref(found))
    return found

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = list(DataLoader(Slow(4), batch_size=2))

def train(until):
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline, report().off
        for batch in batches:
            time.sleep(0.002)
            optimizer.zero_grad()
            launch()
            loss_of(model, batch).backward()
            optimizer.step()
"""


@pytest.fixture
def faked(runtime: Path) -> dict[str, str]:
    fake = runtime.parent / "accel" / "tests" / "fake_cupti" / "libcupti.so.14"
    assert fake.exists(), f"{fake} is not built: scripts/build release fake_cupti"
    return {
        "FAKE": str(fake),
        "CUDA_INJECTION64_PATH": str(runtime / "lib" / "libpaceline_cupti.so"),
    }


PROFILED = """
train(lambda: report().steps == 2)
with {profiler} as profile:
    enables = fakes().enables
    assert fakes().enabled == 0
    assert windows.request(2)
    fake.fake_cupti_take(1)  # PyTorch's profiler stays subscribed
    began = time.monotonic()
    train(lambda: time.monotonic() > began + 0.1)
    assert fakes().enables == enables, "a window opened while the profiler ran"
assert len(profile.key_averages()) > 0
train(lambda: report().steps == 4)
print(paceline.explain())
"""


@pytest.mark.parametrize(
    "profiler", ["torch.profiler.profile()", "torch.autograd.profiler.profile()"]
)
def test_a_profiler_of_pytorch_gets_cupti_to_itself(
    train_by_fork: Train, faked: dict[str, str], profiler: str
) -> None:
    run = train_by_fork(DRIVER + PROFILED.format(profiler=profiler), **faked)
    assert run.code == 0, run.output
    assert TITLE + "on (2 windows, 4 steps)" in run.output, run.output
    assert "  cost: a step took " in run.output


FAILING = """
profile = torch.profiler.profile()
profile.action_map = None
try:
    profile.start()
except Exception as error:
    print("refused", type(error).__name__)
assert windows.request(2)
train(lambda: report().windows >= 1)
assert library.paceline_window_resume() != 0, "it is still paused"
"""


def test_a_profiler_that_fails_gives_cupti_back(
    train_by_fork: Train, faked: dict[str, str]
) -> None:
    run = train_by_fork(DRIVER + FAILING, **faked)
    assert run.code == 0, run.output
    assert "refused " in run.output


SHOWN = """
import paceline
print(paceline.explain())
"""


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "off (PACELINE_KERNEL_WINDOWS is not Auto, or there is no GPU)"),
        ({"CUDA_INJECTION64_PATH": "/nsys.so"}, "off (CUDA_INJECTION64_PATH=/nsys.so is the job's"),
        ({"CUDA_INJECTION64_PATH": "/x/libpaceline_cupti.so"}, "off (CUDA has not been started"),
        (
            {
                "CUDA_INJECTION64_PATH": "/x/libpaceline_cupti.so",
                "PACELINE_KERNEL_WINDOWS": "Disabled",
            },
            "off (PACELINE_KERNEL_WINDOWS is Disabled)",
        ),
    ],
)
def test_the_reason_is_explained(
    train_by_fork: Train, variables: dict[str, str], reason: str
) -> None:
    run = train_by_fork(SHOWN, **variables)
    assert run.code == 0, run.output
    assert TITLE + reason in run.output, run.output
