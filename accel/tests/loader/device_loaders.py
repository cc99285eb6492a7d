# SPDX-License-Identifier: Apache-2.0
"""A device that is not there, for tests of early copies, and loaders that use them.

A copy "on" the device is in this memory. One that was begun has no content before the program's
stream has waited for it. tests/gpu has a real device.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_accelerator import FakeAccelerator
from paceline import loader
from paceline.loader import _device, _report
from torch.utils.data import Dataset

OLD = bool(_device.why_not())


new = pytest.mark.skipif(OLD, reason=_device.why_not())


GPU = torch.device("cuda", 0)


BATCHES = 8


class FakeCuda:
    def __init__(self) -> None:
        self.current = "main"
        self.present = 0
        self.capturing = False
        self.full = False
        self.did: Counter[str] = Counter()
        self.dropped: list[torch.Tensor] = []

    def device(self, named: Any) -> torch.device:
        return _device.Cuda.device(_device.Cuda(), "cuda:0" if named is None else named)

    def stream(self, device: torch.device) -> Any:
        return self.current

    def begin(
        self, sources: list[torch.Tensor], way: _device.Way
    ) -> tuple[list[torch.Tensor], Any]:
        if self.full:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        if self.capturing:
            return [], None
        self.did["begun"] += len(sources)
        copies = [torch.zeros_like(source) for source in sources]
        return copies, [(made.data, weakref.ref(source)) for made, source in zip(copies, sources)]

    def hand_over(self, there: Any, way: _device.Way) -> bool:
        if self.capturing:
            return False
        for made, source in there:
            made.copy_(source())
        self.did["waited on the host"] += not way.non_blocking
        return True

    def drop(self, made: torch.Tensor, way: _device.Way) -> None:
        self.dropped.append(made)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    FakeAccelerator(monkeypatch)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    fake = FakeCuda()
    monkeypatch.setattr(_device, "cuda", fake)
    to, to_cuda = torch.Tensor.to, torch.Tensor.cuda

    def copied(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        on_device = any(
            torch.device(one).type == "cuda" for one in (*args, *options.values()) if is_device(one)
        )
        if not on_device:
            return to(tensor, *args, **options)
        fake.did["PyTorch's"] += 1
        kept = {
            name: value
            for name, value in options.items()
            if name in ("dtype", "copy", "memory_format")
        }
        return to(tensor.clone(), *(one for one in args if isinstance(one, torch.dtype)), **kept)

    def copied_by_cuda(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        fake.did["PyTorch's"] += 1
        return tensor.clone()

    torch.Tensor.to, torch.Tensor.cuda = copied, copied_by_cuda
    _device._asked_of_all.cache_clear()
    yield fake
    _device._asked_of_all.cache_clear()
    _device.unpatch()
    torch.Tensor.to, torch.Tensor.cuda = to, to_cuda
    gc.collect()
    assert not _device._leaves, "they go with their batches"


@pytest.fixture
def patched() -> Iterator[None]:
    """PyTorch's own functions behind ours."""
    _device.patch()
    yield
    _device.unpatch()


def is_device(value: Any) -> bool:
    return isinstance(value, (str, torch.device))


class Pairs(Dataset):
    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> Any:
        return torch.full((8192,), float(index)), index


def settled(made: Any) -> Iterator[Any]:
    """Batches, each when the one after it has been pinned too, as where the device is slower than
    the loader.
    """
    iterator = iter(made)
    exchange = iterator._exchange
    for number in range(BATCHES):
        while number + 1 < BATCHES and len(iterator._task_info.get(number + 1, ())) != 2:
            exchange._land(exchange.pinning)
            exchange.pinning.wait()
            if exchange.landed(number + 1) is not None:
                break
        yield next(iterator)


def pairs(**options: Any) -> Any:
    return loader.DataLoader(
        Pairs(), batch_size=2, num_workers=1, pin_memory=True, device_copies=True, **options
    )


def told(made: Any) -> tuple[int, int]:
    found = _report.account_of(made).told()
    return found["copied"], found["copied_in_vain"]


def right(number: int, pixels: torch.Tensor, labels: torch.Tensor) -> bool:
    wanted = torch.tensor([2 * number, 2 * number + 1])
    return torch.equal(pixels, wanted.float()[:, None].expand(2, 8192)) and torch.equal(
        labels, wanted
    )
