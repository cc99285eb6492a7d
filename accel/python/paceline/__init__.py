# SPDX-License-Identifier: Apache-2.0
"""The part of Paceline that runs inside the training process. Programs need not know it:
`accelerate`, `explain` and `step` are for those that want to.
"""

from __future__ import annotations

# typing itself is not imported: this file is imported into every Python program of the container.
TYPE_CHECKING = False

__all__ = ["__version__", "accelerate", "explain", "step"]


def step(number: int = -1) -> None:
    """Marks the end of a training step. Programs whose steps no optimizer of PyTorch ends call it,
    and those that number their steps themselves.

    Args:
        number: the program's own number of the step, or -1 for none.

    Example:
        >>> for number in range(3):
        ...     paceline.step(number)
    """
    from paceline._core import trace

    trace.explicit_step(number)


def accelerate(
    model: Any = None,
    optimizer: Any = None,
    loader: Any = None,
    *,
    numerics: str = "reordered",
    precision: str | None = None,
    fused: bool = True,
    prefetch_next_epoch: bool | None = None,
) -> Any:
    """Speeds up a training in place, as a job with `spec.acceleration` does it to a program that
    does not call this. What cannot be sped up is left as it is, and `explain` says why. If ranks
    train together, call it on every rank with the same arguments.

    Args:
        model: a `torch.nn.Module`, or None.
        optimizer: a `torch.optim.Optimizer`, a list of them, or None. Adam, AdamW and SGD are
            updated by fused steps.
        loader: a `torch.utils.data.DataLoader`, a list of them, or None. Its workers write batches
            into shared memory.
        numerics: how much a result may change: "bitwise" (not at all), "reordered" (by rounding) or
            "lossy". Upper and lower case are the same. A job's class bounds it.
        precision: "disabled", "tf32", "o1" or "o2", which need `numerics="lossy"`; see
            `paceline.amp` for the last two. None: as the job says.
        fused: False leaves the steps of the optimizers to PyTorch.
        prefetch_next_epoch: see `paceline.loader.DataLoader`.

    Returns:
        What was given, in the same order; one thing as itself, more as a tuple. All are the same
        objects, but for the optimizer of precision "o2".

    Raises:
        TypeError: an argument is no model, optimizer or loader.
        ValueError: a keyword has a value that it cannot have; the text names those that it can.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> model, optimizer = paceline.accelerate(model, optimizer)
        >>> loss = model(torch.ones(8, 4)).mean()
        >>> loss.backward()
        >>> optimizer.step()
    """
    from paceline import _accelerate

    wanted = _accelerate.settings(numerics, precision, fused, prefetch_next_epoch)
    return _accelerate.accelerate(model, optimizer, loader, wanted)


if TYPE_CHECKING:
    __version__: str
    from typing import Any, Literal, overload

    @overload
    def explain() -> str: ...
    @overload
    def explain(as_dict: Literal[True]) -> dict[str, Any]: ...
    def explain(as_dict: bool = False) -> Any: ...

else:

    def explain(as_dict: bool = False) -> Any:
        """Tells which features are on in this process, in which numerics class, why, and at what
        cost.

        Args:
            as_dict: True returns a dict by feature instead of a text.

        Returns:
            A text for people. The dict has for each feature its `state` ("on" or "off"), `reason`,
            `numerics`, and `seen`: what became of each loader, optimizer or model that it has met.

        Example:
            >>> paceline.explain(as_dict=True)["step tracing"]["numerics"]
            'Bitwise'
        """
        from paceline._core import explain as reports

        return reports.as_dict() if as_dict else reports.explain()

    def __getattr__(name: str) -> str:
        """`__version__` is read when it is asked for: that takes some milliseconds."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import metadata

        return metadata.version("paceline")
