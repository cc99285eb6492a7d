# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression: the largest of what momentum has gathered, where it is the
communication and not the optimizer that has momentum. Each host's sum is gathered by who owns its
part: u = momentum * u + gradient, v = v + u; what goes of v is 0 in both then.

What does not go so (small buckets, other types, the passes before `start`) gets momentum as SGD
would give it, after its sum.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

Tensor = torch.Tensor

MILLION = 1_000_000
STEPS = 4  # of a warm-up: a quarter, a sixteenth, … of all values


@dataclass(frozen=True)
class Deep:
    ratio: float
    momentum: float
    start: int
    warmup: int
    clip: float
    optimizer: Any = field(compare=False, repr=False, default=None)  # a weak reference

    def __str__(self) -> str:
        clip = f",clip={self.clip:g}" if self.clip else ""
        return (
            f"DGC:ratio={self.ratio:g},momentum={self.momentum:g},"
            f"start={self.start},warmup={self.warmup}{clip}"
        )

    def keep(self, passes: int) -> int:
        """Of a million values, and the momentum, as the library takes both; `passes` since the
        first that was compressed.
        """
        now = self.ratio
        if passes < self.warmup:
            now = max(now, 0.25 ** (1 + passes * STEPS // self.warmup))
        return round(now * MILLION) | round(self.momentum * 1000) << 20

    def check(self) -> None:
        """Raises if a schedule or a checkpoint gave the optimizer momentum again: it would be
        applied twice."""
        optimizer = self.optimizer() if self.optimizer is not None else None
        again = (
            {group["momentum"] for group in optimizer.param_groups} - {0}
            if optimizer is not None
            else None
        )
        if again:
            raise RuntimeError(
                f"paceline.comm.DGC: the optimizer's momentum is {again.pop()} again: it must stay"
                " 0, for the gradients have it; leave it out of schedules, and of checkpoints of"
                " other runs"
            )

    def clipped(self, buffer: Tensor, ranks: int) -> None:
        """A rank's own share of a bucket, which has been divided by the number of ranks: its norm
        is clip / √ranks at most.
        """
        if self.clip:
            most = self.clip * ranks**-0.5 / ranks
            # On a GPU the host must not wait to read the norm.
            norm = buffer.norm()
            buffer.mul_(torch.where(norm > most, most / norm, torch.ones_like(norm)))


def DGC(
    optimizer: Any, ratio: float = 0.001, warmup: int = 0, clip: float = 0.0, start: int = 2
) -> Deep:
    """For torch.optim.SGD with momentum, which it takes over: the optimizer's own is 0 from now on.
    `ratio` of all values goes, from a quarter on down over the first `warmup` compressed passes;
    `clip` is the largest norm of a bucket of the mean gradient.
    """
    if type(optimizer) is not torch.optim.SGD:
        raise ValueError(
            f"paceline.comm.DGC: optimizer is {type(optimizer).__qualname__}: it takes over the"
            " momentum of torch.optim.SGD; use TopK"
        )
    groups = optimizer.param_groups
    momentum = float(groups[0]["momentum"])
    for key, wanted in (("momentum", momentum), ("nesterov", False), ("dampening", 0)):
        for group in groups:
            if group[key] != wanted:
                raise ValueError(
                    f"paceline.comm.DGC: optimizer has {key}={group[key]}: all its parameters must"
                    f" have {key}={wanted}; use TopK"
                )
    if not 0 < momentum < 1 or abs(momentum * 1000 - round(momentum * 1000)) > 1e-9:
        raise ValueError(
            f"paceline.comm.DGC: optimizer has momentum={momentum}: use 0.001 to 0.999; without"
            " any, use TopK"
        )
    if optimizer.state:
        raise ValueError("paceline.comm.DGC: optimizer has made steps: call it before the first")
    if not 1 / MILLION <= ratio <= 1:
        raise ValueError(f"paceline.comm.DGC: ratio is {ratio}: it must be 0.000001 to 1")
    if start < 2 or warmup < 0 or clip < 0:
        raise ValueError(
            f"paceline.comm.DGC: start is {start}, warmup {warmup}, clip {clip}: start must be 2 or"
            " more, the others not negative"
        )
    for group in groups:
        group["momentum"] = 0
    return Deep(ratio, momentum, start, warmup, clip, weakref.ref(optimizer))


class Momentum:
    """SGD's, for buckets that go as they are: all ranks have the same sum, and so the same
    momentum.
    """

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._gathered: dict[int, Tensor] = {}

    def after(self, wait: Callable[[], Any], index: int, buffer: Tensor) -> Callable[[], Any]:
        def waited() -> None:
            wait()
            gathered = self._gathered.get(index)
            if gathered is None or gathered.shape != buffer.shape or gathered.dtype != buffer.dtype:
                gathered = self._gathered[index] = buffer.clone()
            else:
                buffer.copy_(gathered.mul_(self._momentum).add_(buffer))
            # Do not carry a step that is not finite into later ones.
            gathered.masked_fill_(~torch.isfinite(gathered).all(), 0)

        return waited

    def state_dict(self) -> dict[int, Tensor]:
        return {index: gathered.clone() for index, gathered in self._gathered.items()}

    def load(self, state: dict[int, Tensor]) -> None:
        self._gathered = {index: gathered.clone() for index, gathered in state.items()}
