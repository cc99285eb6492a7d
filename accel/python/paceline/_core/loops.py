# SPDX-License-Identifier: Apache-2.0
"""Marks of training loops that call back for each batch, as those of Keras and Paddle do.

A step goes from the end of a batch to the end of the next one. The framework computes and sums
gradients within one call, so its time is one phase, compute_undivided.
"""

from __future__ import annotations

from typing import Any, Callable

from paceline._core import library as abi
from paceline._core.trace import trace


class LoopMarks:
    """The callbacks that mark. A framework's own callback class is the base beside it."""

    framework_id = 0
    framework_version = ""
    loads_between_batches = False  # the loop asks its loader between two batches, not within one

    def on_train_begin(self, logs: Any = None) -> None:
        name_framework(self.framework_id, self.framework_version)
        if trace.open():
            assert trace.lib is not None
            trace.lib.step(-1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._enter_between()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._leave_between(abi.NO_BATCH)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._leave_between(abi.SAMPLES_UNKNOWN)
        if trace.lib is not None:
            trace.lib.phase_enter(abi.COMPUTE_UNDIVIDED)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if trace.lib is None:
            return
        trace.lib.step(-1)
        trace.lib.phase_leave(abi.COMPUTE_UNDIVIDED)
        self._enter_between()

    def on_test_begin(self, logs: Any = None) -> None:
        if trace.lib is not None:
            trace.lib.phase_enter(abi.EVALUATION)

    def on_test_end(self, logs: Any = None) -> None:
        if trace.lib is not None:
            trace.lib.phase_leave(abi.EVALUATION)

    on_eval_begin, on_eval_end = on_test_begin, on_test_end  # Paddle's names

    def _enter_between(self) -> None:
        if trace.lib is None:
            return
        if self.loads_between_batches:
            trace.lib.loader_enter(0, 1)
        else:
            trace.lib.phase_enter(abi.OTHER)

    def _leave_between(self, samples: int) -> None:
        if trace.lib is None:
            return
        if self.loads_between_batches:
            trace.lib.loader_leave(0, samples)
        else:
            trace.lib.phase_leave(abi.OTHER)


def callback_of(make: Callable[[], Any], *bases: type, **members: Any) -> Any:
    """Makes the callback of a framework whose classes are known once it is imported.

    Args:
        make: the function that makes such a callback. A pickled callback is made by it again, as
            its class has no name of its own.
        bases: what the class derives from, the first one first.
        members: of the class.

    Returns:
        An instance of the class.
    """

    def reduce(_: Any) -> tuple[Callable[[], Any], tuple[()]]:
        return make, ()

    own = {"__module__": make.__module__, "__reduce__": reduce}
    return type("Callback", bases, {**members, **own})()


def name_framework(framework_id: int, version: str) -> None:
    """Says which framework trains, unless PyTorch, which marks by itself, has said so."""
    if trace.framework_id == 0:
        trace.framework_id = framework_id
        trace.framework_version = version.encode()[:31]
