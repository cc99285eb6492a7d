# SPDX-License-Identifier: Apache-2.0
"""device_copies=True in programs: subclasses, forks, compiled code and prefetched epochs, and who may
ask for it.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
from typing import Any

import pytest
import torch
from device_loaders import BATCHES, GPU, FakeCuda, Pairs, new, pairs, right, settled, told
from paceline import loader
from paceline.loader import _device, _report


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
