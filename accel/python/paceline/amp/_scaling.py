# SPDX-License-Identifier: Apache-2.0
"""The two operations of a gradient scaler on the device. PyTorch has them; on the CPU of releases
before 2.3 their formulas are written out here.
"""

from __future__ import annotations

import functools

import torch

Tensor = torch.Tensor


@functools.cache
def on_cpu_too() -> bool:
    """Whether this PyTorch's own operations for scaling run on the CPU, as those of 2.3 do."""
    try:
        values = (
            torch.zeros((), dtype=dtype, device="cpu")
            for dtype in (torch.float32, torch.int32, torch.float32)
        )
        torch._amp_update_scale_(*values, 2.0, 0.5, 1)
    except (NotImplementedError, RuntimeError):
        return False
    return True


def multiply(grads: list[Tensor], found: Tensor, inverse: Tensor) -> None:
    """Multiplies the gradients in place, and makes `found` 1 if one of them is not finite."""
    if found.device.type != "cpu" or on_cpu_too():
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        return
    for grad in grads:
        found.copy_(torch.maximum(found, (~torch.isfinite(grad)).any().to(found.dtype)))
        # 16-bit values are multiplied in float32, as there.
        product = (
            grad.float() * inverse
            if grad.dtype in (torch.float16, torch.bfloat16)
            else grad * inverse
        )
        grad.copy_(torch.where(inverse == 1, grad, product.to(grad.dtype)))


def next_scale(
    scale: Tensor, tracker: Tensor, found: Tensor, growth: float, backoff: float, interval: int
) -> None:
    """Sets the scale of the next step in place. `found` is not 0 if the step was skipped; `tracker`
    counts the steps since the scale changed.
    """
    if scale.device.type != "cpu" or on_cpu_too():
        torch._amp_update_scale_(scale, tracker, found, growth, backoff, interval)
        return
    larger = (scale.double() * growth).float()
    smaller = (scale.double() * backoff).float()
    grows = tracker + 1 == interval
    kept = torch.where(grows & torch.isfinite(larger), larger, scale)
    scale.copy_(torch.where(found != 0, smaller, kept))
    tracker.copy_(torch.where((found != 0) | grows, torch.zeros_like(tracker), tracker + 1))
