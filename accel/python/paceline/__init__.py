# SPDX-License-Identifier: Apache-2.0
"""The part of Paceline that runs inside the training process.

A job's program need not import it. A program may call `accelerate` to speed itself up, `explain` to
see what is on, and `step` to number its steps.
"""

from __future__ import annotations

# typing itself is not imported: this file is imported into every Python program of the container.
TYPE_CHECKING = False

__all__ = ["__version__", "accelerate", "explain", "step"]


def step(number: int = -1) -> None:
    """Marks the end of a training step. Call it if no optimizer of PyTorch ends the steps of the
    program, or to report the program's own step numbers.

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
    """Speeds up model, optimizer and loader in place, as `spec.acceleration` does in a job.

    What cannot be sped up stays as it is, and `explain` says why. If several ranks train together,
    call it on every rank with the same arguments.

    Args:
        model: a `torch.nn.Module`, or None.
        optimizer: a `torch.optim.Optimizer`, a list of them, or None. Adam, AdamW and SGD are
            updated by fused steps.
        loader: a `torch.utils.data.DataLoader`, a list of them, or None. Its workers write batches
            into shared memory.
        numerics: how much a result may change: "bitwise" (not at all), "reordered" (by rounding) or
            "lossy". Upper and lower case are the same. If the job names a stricter class, that
            one holds.
        precision: "disabled", "tf32", "o1" or "o2", which need `numerics="lossy"`; see
            `paceline.amp` for the last two. None: as the job says.
        fused: False leaves the steps of the optimizers to PyTorch.
        prefetch_next_epoch: see `paceline.loader.DataLoader`.

    Returns:
        The arguments that are not None, in the same order: a tuple, or the object itself if there
        is only one. They are the same objects, except the optimizer with precision "o2".

    Raises:
        TypeError: an argument is no model, optimizer or loader.
        ValueError: a keyword has an unknown value; the text names the known ones.

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
        """Reports which features are on in this process, their numerics class, and the reason if
        they are off.

        Args:
            as_dict: True returns a dict by feature instead of a text.

        Returns:
            A text, or the dict. For each feature the dict has its `state` ("on" or "off"),
            `reason`, `numerics`, `seen`: what Paceline did with each loader, optimizer or model
            that the program made, and `predicted`: the gain that is expected of it, or None.

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
