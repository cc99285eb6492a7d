# SPDX-License-Identifier: Apache-2.0
"""XGBoost's collective from the variables of a job, and a callback that marks boosting rounds.

Importing this module does not import XGBoost.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from paceline._core import loops
from paceline._core.trace import explicit_step

__all__ = ["Callback", "communicator"]


@contextlib.contextmanager
def communicator() -> Iterator[None]:
    """Joins the ranks of the job for as long as the context lasts. XGBoost's ranks are the job's.

    XGBoost takes the tracker's address as an argument and reads no variable. This reads
    DMLC_TRACKER_URI, DMLC_TRACKER_PORT, RANK and WORLD_SIZE. Rank 0 serves the tracker. A program
    that was started alone trains alone.

    Raises:
        RuntimeError: a variable of a job is not set; the text names it.
        xgboost.core.XGBoostError: another rank did not come.

    Example:
        >>> with paceline.xgboost.communicator():  # doctest: +SKIP
        ...     xgboost.train(parameters, data)
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        yield
        return
    rank, port = int(_told("RANK")), int(_told("DMLC_TRACKER_PORT"))
    address = socket.gethostbyname(_told("DMLC_TRACKER_URI"))
    tracker = None
    if rank == 0:
        # Sorted by the task's id, which is a text, so that ranks are the job's.
        made = importlib.import_module("xgboost.tracker").RabitTracker
        tracker = made(n_workers=ranks, host_ip=address, port=port, sortby="task")
        tracker.start()
    context = importlib.import_module("xgboost.collective").CommunicatorContext
    with context(
        dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=f"{rank:08}", dmlc_retry=60
    ):
        yield
    if tracker is not None:
        tracker.wait_for()


def _told(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise RuntimeError(
            f"{variable} is not set: start the program by a job with framework XGBoost"
        )
    return value


def Callback() -> Any:
    """Returns a callback that marks each boosting round as a step. In a job `xgboost.train` is
    marked without it, and it does nothing.

    Returns:
        A new `xgboost.callback.TrainingCallback`, for the argument `callbacks` of `xgboost.train`.

    Raises:
        ImportError: XGBoost is not installed.

    Example:
        >>> rounds = paceline.xgboost.Callback()  # doctest: +SKIP
        >>> xgboost.train(parameters, data, callbacks=[rounds])  # doctest: +SKIP
    """
    base = importlib.import_module("xgboost.callback").TrainingCallback
    if "xgboost" in loops.marked:
        return loops.callback_of(Callback, base)
    return loops.callback_of(Callback, base, before_training=_begin, after_iteration=_step)


def _begin(_: Any, model: Any) -> Any:
    explicit_step(-1)
    return model


def _step(_: Any, model: Any, epoch: int, evals_log: Any) -> bool:
    explicit_step(epoch)
    return False
