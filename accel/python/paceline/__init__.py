# SPDX-License-Identifier: Apache-2.0
"""The part of Paceline inside the training process. Programs need not know it; `step` and `explain` are for those
that do."""

from __future__ import annotations

__all__ = ["explain", "step"]


def step(number: int = -1) -> None:
    """Tells a step boundary (where no optimizer of PyTorch marks it) or the program's own number of the step just
    made."""
    from paceline import _marks

    _marks.explicit_step(number)


def explain() -> str:
    """What is on in this process, in which numerics class, and why; what it costs."""
    from paceline import _explain

    return _explain.explain()
