# SPDX-License-Identifier: Apache-2.0
"""The part of Paceline that runs inside the training process.

A job's program need not import it. A program may call `accelerate` to speed itself up, `explain` to
see what is on, and `step` to number its steps.
"""

from __future__ import annotations

# typing itself is not imported: this file is imported into every Python program of the container.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    Batch = TypeVar("Batch")

__all__ = [
    "__version__",
    "accelerate",
    "explain",
    "finished",
    "log_to",
    "save_requested",
    "saved",
    "step",
    "steps",
]


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


def steps(batches: Iterable[Batch], *, first: int = 0) -> Iterator[Batch]:
    """Iterates over batches, and marks each as a step: the wait for the batch, and the work on it.

    It is for loops that no optimizer of PyTorch drives, as those of JAX. Work on a device counts
    where the loop waits for it.

    Args:
        batches: what the loop goes over.
        first: the program's own number of the first step.

    Yields:
        The batches, unchanged.

    Example:
        >>> for batch in paceline.steps([1, 2, 3]):
        ...     pass  # loss, state = train_step(state, batch)
    """
    from paceline._core import loops

    return loops.steps(batches, first)


def save_requested(step: int = -1) -> bool:
    """Whether to save a checkpoint now, because a pod of the job goes or may soon be lost.

    Call it once after each step, on every rank. It returns True on all ranks after the same step,
    once for each such cause. If a pod goes, the ranks have `spec.failurePolicy.gracePeriod` to save
    together. The next call says that the checkpoint is saved, and so does the end of the program.

    Args:
        step: the program's own number of the step, which the job's status shows. It must grow, and
            be the same on all ranks. -1: the calls are counted.

    Example:
        >>> for number in range(3):
        ...     if paceline.save_requested(number):
        ...         print("save a checkpoint here")
    """
    from paceline._core import saving

    return saving.requested(step)


def saved() -> None:
    """Says that the checkpoint that `save_requested` asked for is saved.

    Call it if the program does something else before it calls `save_requested` again, or ends.

    Example:
        >>> paceline.saved()
    """
    from paceline._core import saving

    saving.saving.saved()


def finished() -> None:
    """Says that training is complete, so an exit with 0 ends the job also right after a save.

    Without it a rank that exits before its next call of `save_requested` counts as one that has
    left because of the save, and the job starts again from the checkpoint. Call it after the loop,
    and not if `save_requested` ended the loop.

    Example:
        >>> paceline.finished()
    """
    from paceline._core import saving

    saving.saving.finished()


def log_to(name: str, *, folder: str | None = None, every: float = 10.0) -> None:
    """Logs step time, shares of the phases, samples per second and effects where your team looks.

    A thread of rank 0 logs means over the steps since its last report. Other ranks do nothing. A
    job sets the variable `PACELINE_LOG_TO` instead, and leaves its program as it is.

    Args:
        name: "mlflow" or "wandb" logs into the run that the program has open, from then on.
            "tensorboard" writes an event file by `torch.utils.tensorboard` or `tensorboardX`.
        folder: of the event file; default: runs/paceline.
        every: seconds between two reports, at least 1.

    Raises:
        ValueError: `name` is unknown, or `every` too small.

    Example:
        >>> paceline.log_to("tensorboard", folder="runs/today/paceline")
    """
    from paceline._core import hand_over

    hand_over.log_to(name, folder, every)


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
        model: a `torch.nn.Module`, or None. With a model, fused operators take the places of
            methods of the vision libraries that have them, for all models of the process.
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
