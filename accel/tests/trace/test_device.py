# SPDX-License-Identifier: Apache-2.0
"""Loops on a device that is not there: PyTorch believes that it has CUDA, and the fake driver's
clock moves as the program says. What is measured on a real one, tests/gpu/device_check.py compares
with torch.profiler.
"""

from __future__ import annotations

import textwrap

import pytest
from programs import Run, Train

EVENTS = 1 << 1  # PACELINE_CAPABILITY_DEVICE_EVENTS

BEGIN = """
import ctypes
from types import SimpleNamespace

fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.fake_cuda_work.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
fake.fake_cuda_work.restype = None
fake.fake_cuda_advance.argtypes = [ctypes.c_uint64]
fake.fake_cuda_log.restype = ctypes.c_char_p
fake.cuCtxPushCurrent_v2.argtypes = [ctypes.c_void_p]
STREAM, MS = 77, 1_000_000

class Busy(torch.optim.SGD):
    def step(self, closure=None):
        fake.fake_cuda_work(STREAM, 5 * MS)
        return super().step(closure)

def use_cuda():
    fake.cuCtxPushCurrent_v2(1)
    torch.cuda.is_initialized = lambda: True
    torch.cuda.current_stream = lambda: SimpleNamespace(cuda_stream=STREAM)

def nothing_was_asked():
    said = fake.fake_cuda_log()
    # PyTorch itself, built for CUDA, looks for a driver in its first backward.
    return b"cuEvent" not in said and (torch.version.cuda is not None or not said)

def train(batches=5):
    model = small()
    optimizer = Busy(model.parameters(), lr=0.1)
    for batch in DataLoader(Slow(8 * batches), batch_size=8):
        loss = loss_of(model, batch)
        fake.fake_cuda_work(STREAM, 2 * MS)
        loss.register_hook(lambda gradient: fake.fake_cuda_work(STREAM, 3 * MS))
        loss.backward()
        optimizer.step()
    fake.fake_cuda_advance(1000 * MS)
"""


@pytest.fixture
def on_fake(train_by_fork: Train, fake_device: dict[str, str]) -> Train:
    def train(program: str, **extra: str) -> Run:
        return train_by_fork(BEGIN + textwrap.dedent(program), **{**fake_device, **extra})

    return train


def test_an_ordinary_loop_has_the_times_of_its_device(on_fake: Train) -> None:
    ring = on_fake("""
        import paceline
        use_cuda()
        train()
        text = paceline.explain()
        assert "on the clocks of the host and of the GPU" in text, text
        assert "device times: on" in text, text
        assert b"cuInit" in fake.fake_cuda_log()
        """).only()
    assert (ring.device_kind, ring.device_number, ring.pci_address) == (2, 1, "0000:a0:00.0")
    assert ring.capabilities & EVENTS
    assert [record.step for record in ring.amendments] == [1, 2, 3, 4, 5]
    for record in ring.amendments[1:]:
        assert record.device["forward"] == pytest.approx(0.002, abs=1e-6)
        assert record.device["backward"] == pytest.approx(0.003, abs=1e-6)
        assert record.device["optimizer"] == pytest.approx(0.005, abs=1e-6)
        assert record.device_window_ns is not None
        assert sum(record.device.values()) == pytest.approx(record.device_window_ns / 1e9)
        # What events cannot tell is absent.
        assert not {"idle_gap", "idle_host", "h2d", "checkpoint"} & set(record.device)
    costs = [record.overhead_ns for record in ring.steps]
    assert max(costs[1:]) > costs[0] / 2 > 0


def test_a_device_that_is_used_late_is_measured_from_then_on(on_fake: Train) -> None:
    ring = on_fake("""
        train(4)
        assert nothing_was_asked(), "nothing starts CUDA for the program"
        use_cuda()
        train(4)
        """).only()
    assert ring.device_kind == 2 and ring.capabilities & EVENTS
    assert [record.step for record in ring.amendments] == [5, 6, 7, 8]


def test_a_context_that_comes_later_is_waited_for(on_fake: Train) -> None:
    ring = on_fake("""
        use_cuda()
        fake.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        train(3)
        fake.cuCtxPushCurrent_v2(1)
        train(3)
        """).only()
    assert [record.step for record in ring.amendments] == [4, 5, 6]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("pass", ""),
        ("torch.cuda.current_stream = lambda: 1 / 0", "ZeroDivisionError"),
        ("del torch.cuda.current_stream", "current_stream"),
        ("fake.fake_cuda_set(b'cuCtxGetDevice', 700)", "cuCtxGetDevice"),
    ],
)
def test_a_device_that_cannot_be_asked_disturbs_nothing(
    on_fake: Train, change: str, words: str
) -> None:
    run = on_fake(f"""
        use_cuda()
        {change}
        train(4)
        """)
    ring = run.only()
    assert len(ring.steps) == 4
    assert run.output.count("device times are off") == (1 if words else 0)
    assert words in run.output
    assert bool(ring.amendments) is not bool(words)


def test_a_stream_that_fails_later_ends_the_measurement(on_fake: Train) -> None:
    run = on_fake("""
        use_cuda()
        asked = []
        def stream():
            asked.append(1)
            if len(asked) == 120:  # 100 of them to know the cost
                raise RuntimeError("no stream any more")
            return SimpleNamespace(cuda_stream=STREAM)
        torch.cuda.current_stream = stream
        train(6)
        assert len(asked) == 120, asked
        """)
    assert len(run.only().steps) == 6
    assert run.output.count("device times are off: RuntimeError: no stream any more") == 1


def test_nothing_is_asked_of_a_program_on_the_cpu(on_fake: Train) -> None:
    ring = on_fake("""
        train(3)
        assert nothing_was_asked()
        """).only()
    assert ring.device_kind == 1 and not ring.amendments and not ring.capabilities & EVENTS
