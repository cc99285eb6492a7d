# SPDX-License-Identifier: Apache-2.0
"""device_copies=True: when the next batch is copied before the program asks, and that its calls
give what PyTorch's give. There is no device: a copy "on" it is in this memory, and one that is
begun has no content before the program's stream has waited for it. tests/gpu has a real one.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_accelerator import FakeAccelerator
from torch.utils.data import Dataset

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
from paceline import loader  # noqa: E402 - where it lies is known only now
from paceline.loader import _device, _report  # noqa: E402

torch.set_num_threads(1)
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


CALLS = {
    "to": lambda tensor: tensor.to(GPU),
    "to by name": lambda tensor: tensor.to("cuda:0"),
    "to by keyword": lambda tensor: tensor.to(device="cuda", non_blocking=True),
    "cuda": lambda tensor: tensor.cuda(),
    "cuda with arguments": lambda tensor: tensor.cuda(GPU, True),
}


@new
@pytest.mark.parametrize("call", CALLS)
def test_copies_are_begun_when_two_batches_were_copied_alike(call: str, cuda: FakeCuda) -> None:
    made = pairs()
    for number, (pixels, labels) in enumerate(settled(made)):
        on_device = CALLS[call](pixels), CALLS[call](labels)
        assert right(number, *on_device)
        assert cuda.did["PyTorch's"] == 2 * min(number + 1, 3)
        assert cuda.did["begun"] == 2 * min(max(0, number - 1), BATCHES - 3)
    made._iterator = None
    assert told(made) == (2 * (BATCHES - 3) - 2, 0), "the last batch is never followed by another"
    blocking = call in ("to", "to by name", "cuda")
    assert (
        cuda.did["waited on the host"] == (2 * (BATCHES - 3) if blocking else 0)
        and not cuda.dropped
    )


@new
def test_a_copy_is_what_torch_would_have_made(cuda: FakeCuda) -> None:
    made = pairs()
    for number, (pixels, _) in enumerate(settled(made)):
        first, second = pixels.to(GPU), pixels.to(GPU)
        for one in (first, second):
            assert (
                one._version == 0
                and one.is_leaf
                and not one.requires_grad
                and one.stride() == pixels.stride()
            )
        first.zero_()
        assert second[1, 0] == 2 * number + 1 == pixels[1, 0], "each call has a copy of its own"
    assert told(made) == (BATCHES - 4, 0)


def use(change: Any) -> tuple[Any, list[bool]]:
    made, good = pairs(), []
    for number, (pixels, labels) in enumerate(settled(made)):
        expected, found = change(pixels, labels, number)
        good.append(torch.equal(expected, found))
    return made, good


CHANGES = {
    "written to": lambda pixels, labels, number: (pixels.mul_(2).clone(), pixels.to(GPU)),
    "other data": lambda pixels, labels, number: (
        pixels.__setattr__("data", pixels.data + 1),
        pixels.clone(),
        pixels.to(GPU),
    )[1:],
    "a view": lambda pixels, labels, number: (pixels[1].clone(), pixels[1].to(GPU)),
    "another type": lambda pixels, labels, number: (pixels.half(), pixels.to(GPU, torch.float16)),
    "a copy in any case": lambda pixels, labels, number: (
        pixels.clone(),
        pixels.to(GPU, copy=True),
    ),
    "the host": lambda pixels, labels, number: (pixels, pixels.to("cpu")),
    "every other batch": lambda pixels, labels, number: (
        pixels,
        pixels.to(GPU) if number % 2 else pixels,
    ),
    "one way, then another": lambda pixels, labels, number: (
        pixels,
        pixels.to(GPU, non_blocking=number % 2 == 0),
    ),
}


@new
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_done_otherwise_is_torchs(name: str, cuda: FakeCuda) -> None:
    made, good = use(CHANGES[name])
    assert good == [True] * BATCHES and told(made)[0] == 0
    if name in ("written to", "other data"):
        # The third was begun before the second had been in vain.
        assert told(made)[1] == 2 and len(cuda.dropped) == 3
        assert "in vain for 2 batches in a row" in _report.account_of(made).line()
    else:
        assert cuda.did["begun"] == 0


@new
def test_another_stream_and_a_captured_one_get_torchs_copy(cuda: FakeCuda) -> None:
    def change(pixels: torch.Tensor, labels: torch.Tensor, number: int) -> Any:
        cuda.current = "side" if number == 3 else "main"
        cuda.capturing = number == 7
        found = pixels.to(GPU)
        cuda.capturing = False
        return pixels, found

    made, good = use(change)
    # The fourth was begun for another stream, the fifth was right, two batches had to be alike
    # again, and the last one is captured.
    assert (
        good == [True] * BATCHES
        and told(made) == (1, 1)
        and len(cuda.dropped) == 2
        and cuda.did["begun"] == 3
    )


@new
def test_what_requires_a_gradient_is_copied_by_torch_alone(cuda: FakeCuda) -> None:
    pinned = torch.empty_strided((2, 3), (3, 1), pin_memory=True)
    found = list(_device.tensors_of([pinned, pinned.detach().requires_grad_()]))
    assert len(found) == 1 and found[0] is pinned


@new
def test_inference_mode_gives_inference_tensors(cuda: FakeCuda) -> None:
    made = pairs()
    for number, (pixels, _) in enumerate(settled(made)):
        with torch.inference_mode(number == 3):
            assert pixels.to(GPU).is_inference() == (number == 3)
    assert told(made) == (BATCHES - 5, 1)


@new
def test_under_modes_calls_are_torchs(cuda: FakeCuda) -> None:
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    made = pairs()
    for number, (pixels, _) in enumerate(settled(made)):
        if number == 4:
            with Mode():
                pixels.to(GPU)
        else:
            pixels.to(GPU)
    assert told(made) == (BATCHES - 5, 1) and seen


@new
def test_batches_that_nobody_copies_any_more(cuda: FakeCuda) -> None:
    made = pairs()
    kept = []
    for number, (pixels, labels) in enumerate(settled(made)):
        if number < 4:
            kept += [pixels.to(GPU), labels.to(GPU)]
        assert len(_device._leaves) <= 4, "of this batch and the next"
    # Two batches had been begun when the first of them was seen to be in vain.
    assert told(made) == (2, 4) and len(cuda.dropped) == 4 and len(kept) == 8


@new
def test_a_device_without_memory_is_left_alone(cuda: FakeCuda) -> None:
    made = pairs()
    for number, (pixels, _) in enumerate(settled(made)):
        cuda.full = number > 3
        pixels.to(GPU)
    assert "OutOfMemoryError" in _report.account_of(made).line() and cuda.did["begun"] > 0


@new
def test_delivered_tensors_are_ordinary_ones(cuda: FakeCuda) -> None:
    for pixels, _ in settled(pairs()):
        pixels.to(GPU)
        again = pickle.loads(pickle.dumps(pixels))
        assert (
            torch.equal(again, pixels)
            and not vars(copy.copy(pixels))
            and type(pixels) is torch.Tensor
        )


class Marked(torch.Tensor):
    """As torchvision's: what some functions give is of the class too."""

    KEEPS = {torch.Tensor.to}

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = function(*args, **(kwargs or {}))
        return found.as_subclass(cls) if function in cls.KEEPS else found


@new
def test_subclasses_know_the_function_that_they_are_called_for(patched: None) -> None:
    marked = torch.ones(3).as_subclass(Marked)
    assert type(marked.to(torch.float64)) is Marked and type(marked + 1) is torch.Tensor
    assert (
        torch.Tensor.to.__name__ == "to"
        and torch.Tensor.to(torch.ones(2), torch.int8).dtype == torch.int8
    )


@new
def test_a_forked_child_leaves_the_device_alone(cuda: FakeCuda) -> None:
    batches = settled(pairs())
    for _ in range(3):
        pixels = next(batches)[0]
        pixels.to(GPU)
    assert cuda.did["begun"] == 1
    child = os.fork()
    if child == 0:
        try:
            for leaf in list(_device._leaves.values()):
                leaf.drop()
            os._exit(len(cuda.dropped))
        finally:
            os._exit(9)
    assert os.waitpid(child, 0)[1] == 0
    assert next(batches)[0].to(GPU)[0, 0] == 6 and cuda.did["PyTorch's"] == 3


@new
def test_compiled_code_is_as_ever(patched: None) -> None:
    tensor = torch.arange(4.0)
    _device.Leaf(tensor)
    compiled = torch.compile(
        lambda one: one.to("cpu", torch.float64) * 2, backend="eager", fullgraph=True
    )
    assert (
        torch.equal(compiled(tensor), tensor.double() * 2)
        and compiled(tensor).dtype == torch.float64
    )


@new
def test_the_first_batch_of_a_prefetched_epoch(cuda: FakeCuda) -> None:
    made = pairs(persistent_workers=True, prefetch_next_epoch=True, shuffle=True)
    orders = []
    for epoch in range(4):
        if epoch == 3:
            torch.manual_seed(5)  # another order than was predicted
        iterator = iter(made)
        exchange = iterator._exchange
        order = []
        for number in range(BATCHES):
            last = number + 1 == BATCHES
            following = (0, True) if last else (number + 1, False)
            while (
                exchange.landed(*following) is None
                and len(iterator._task_info.get(number + 1, ())) != 2
            ):
                exchange._land(exchange.pinning)
                exchange.pinning.wait()
            pixels, labels = next(iterator)
            before = made_early(made)
            assert torch.equal(pixels.to(GPU)[:, 0], labels.to(GPU).float())
            if number == 0 and epoch:
                assert made_early(made) - before == (2 if epoch < 3 else 0), epoch
            order += labels.tolist()
        assert sorted(order) == list(range(2 * BATCHES))
        orders.append(order)
    assert len({tuple(order) for order in orders}) == 4
    copied, in_vain = told(made)
    # All but the first three, the one that was predicted wrongly, and the last, which is counted
    # with the next.
    assert (copied, in_vain) == (2 * (4 * BATCHES - 5), 0), (copied, in_vain)
    dropped = len(cuda.dropped)
    del made, iterator, exchange, pixels, labels
    gc.collect()
    assert len(cuda.dropped) == dropped + 2, "the copy for an epoch that does not come"


def made_early(made: Any) -> int:
    """Tensors that the program's calls were given early so far."""
    return told(made)[0] + sum(leaf.hit for leaf in _device._leaves.values())


@new
@pytest.mark.parametrize(
    "asked,expected", [("Auto", True), ("Disabled", False), ("", False), ("1", False)]
)
def test_a_job_may_ask_for_it(
    asked: str,
    expected: bool,
    cuda: FakeCuda,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACELINE_LOADER_DEVICE_COPIES", asked)
    made = loader.accelerate(
        torch.utils.data.DataLoader(Pairs(), batch_size=2, num_workers=1, pin_memory=True)
    )
    for number, (pixels, labels) in enumerate(settled(made)):
        assert right(number, pixels.to(GPU), labels.to(GPU))
    assert (told(made)[0] > 0) == expected
    for _ in made:
        pass
    assert capfd.readouterr().err.count("must be Auto or Disabled") == (asked == "1")
    # The program's own word counts.
    for told_by_program in (True, False):
        other = loader.DataLoader(
            Pairs(), batch_size=2, num_workers=1, pin_memory=True, device_copies=told_by_program
        )
        for pixels, labels in settled(other):
            pixels.to(GPU), labels.to(GPU)
        assert (told(other)[0] > 0) == told_by_program


@pytest.mark.parametrize(
    "options,why", [({"pin_memory": False}, "pin_memory is not set"), ({}, _device.why_not())]
)
def test_why_nothing_is_copied_early(options: dict[str, Any], why: str, cuda: FakeCuda) -> None:
    made = loader.accelerate(
        torch.utils.data.DataLoader(
            Pairs(), batch_size=2, num_workers=1, **{"pin_memory": True, **options}
        ),
        device_copies=True,
    )
    assert sum(1 for _ in made) == BATCHES
    line = _report.account_of(made).line()
    assert (
        ("no early copies to the device: " + why in line) if why else "no early copies" not in line
    )


def test_it_is_off_unless_asked_for(cuda: FakeCuda) -> None:
    original = torch.Tensor.to
    made = loader.DataLoader(Pairs(), batch_size=2, num_workers=1, pin_memory=True)
    for pixels, _ in made:
        pixels.to(GPU)
    assert torch.Tensor.to is original and "early" not in _report.account_of(made).line()
