# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression (Lin et al., arXiv:1712.01887): ranks send the largest values of the
accumulated momentum.

The communication applies momentum, not the optimizer. The owner of a part of its host's sum keeps u
= momentum * u + gradient and v = v + u. It sends the largest values of v, and sets them to 0 in
both.

Buckets that are sent uncompressed get SGD's momentum after their sum.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

Tensor = torch.Tensor

MILLION = 1_000_000
STEPS = 4  # steps of a warm-up, which send a quarter, a sixteenth, … of all values


@dataclass(frozen=True)
class Deep:
    """The settings of one deep gradient compression; `DGC` makes it, _compression uses it."""

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
        """Returns how many of a million values to send and the momentum, in the form that
        `all_reduce_coded` takes. `passes` counts from the first that is compressed.
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
        """Limits the norm of this rank's gradients in a bucket to clip / √ranks. The bucket is
        already divided by the number of ranks.
        """
        if self.clip:
            most = self.clip * ranks**-0.5 / ranks
            # On a GPU the host must not wait to read the norm.
            norm = buffer.norm()
            buffer.mul_(torch.where(norm > most, most / norm, torch.ones_like(norm)))


def DGC(
    optimizer: Any, ratio: float = 0.001, warmup: int = 0, clip: float = 0.0, start: int = 2
) -> Deep:
    """Makes a deep gradient compression (Lin et al., arXiv:1712.01887; class Lossy). Pass it to
    `ddp_hook`. It sends the largest values of the accumulated momentum.

    It takes over the optimizer's momentum, so it sets the optimizer's own to 0. Keep it 0 in
    schedules.

    Args:
        optimizer: a torch.optim.SGD with momentum that has made no step.
        ratio: the fraction of values to send, 0.000001 to 1.
        warmup: over how many compressed passes the fraction falls from a quarter to `ratio`.
        clip: the largest norm of a bucket of the mean gradient; 0 for no limit.
        start: passes before the first that is compressed, 2 or more.

    Raises:
        ValueError: if the optimizer is another or has Nesterov momentum, or an argument is out of
            range.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        >>> str(paceline.comm.DGC(optimizer, ratio=0.01))
        'DGC:ratio=0.01,momentum=0.9,start=2,warmup=0'
        >>> optimizer.param_groups[0]["momentum"]
        0
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
    """SGD's momentum for buckets that are sent uncompressed. All ranks have the same sums, so they
    have the same momentum.
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
