# SPDX-License-Identifier: Apache-2.0
"""device_copies=True: when the next batch is copied before the program asks, and that its calls give
what PyTorch's give.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_loaders import BATCHES, GPU, FakeCuda, new, pairs, right, settled, told
from paceline.loader import _device, _report

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
