# SPDX-License-Identifier: Apache-2.0
"""The part of Paceline inside the training process. Programs need not know it; `accelerate`, `step`
and `explain` are for those that do.
"""

from __future__ import annotations

# Not typing's own: this is imported into every Python program of the container.
TYPE_CHECKING = False

__all__ = ["__version__", "accelerate", "explain", "step"]


def step(number: int = -1) -> None:
    """Tells a step boundary (where no optimizer of PyTorch marks it) or the program's own number of
    the step just made.
    """
    from paceline._core import trace

    trace.explicit_step(number)


def accelerate(
    model: Any = None,
    optimizer: Any = None,
    loader: Any = None,
    config: Mapping[str, Any] | None = None,
) -> Any:
    """Speeds up what it can of a training, in place, as a job with spec.acceleration has it done to
    a program that does not call this; the rest is left as it is, and `explain` says why. Returns
    what was given, but for the optimizer of precision O2.

        model, optimizer, loader = paceline.accelerate(model, optimizer, loader)

    config: {"loader": "Auto" or "Disabled", "optimizer": "Auto" or "Disabled", "numerics":
    "Reordered", "Bitwise" or "Lossy", "ahead": True or False, "precision": "Disabled", "TF32", "O1"
    or "O2"}; see paceline.loader for `ahead`, paceline.amp for O1 and O2. Where ranks train
    together, all call it alike.
    """
    from paceline import _accelerate

    return _accelerate.accelerate(model, optimizer, loader, config)


if TYPE_CHECKING:
    __version__: str
    from collections.abc import Mapping
    from typing import Any, Literal, overload

    @overload
    def explain() -> str: ...
    @overload
    def explain(as_dict: Literal[True]) -> dict[str, Any]: ...
    def explain(as_dict: bool = False) -> Any: ...

else:

    def explain(as_dict: bool = False) -> Any:
        """What is on in this process, in which numerics class, and why; what it costs. As a dict:
        by feature.
        """
        from paceline._core import explain as reports

        return reports.as_dict() if as_dict else reports.explain()

    def __getattr__(name: str) -> str:
        """`__version__` is read when it is asked for: that takes some milliseconds."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import metadata

        return metadata.version("paceline")
