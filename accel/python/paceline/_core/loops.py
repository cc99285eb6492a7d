# SPDX-License-Identifier: Apache-2.0
"""Marks of training loops that call back for each batch, as those of Keras and Paddle do, and of
loops that take their batches from `paceline.steps`.

A step goes from the end of a batch to the end of the next one. The framework computes and sums
gradients within one call, so its time is one phase, compute_undivided.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Callable

from paceline._core import library as abi
from paceline._core import marks, on_demand
from paceline._core.trace import explicit_step, trace

_UNKNOWN = abi.SAMPLES_UNKNOWN
# Modules whose own loops mark by themselves (paceline._frameworks): a callback there marks nothing.
marked: set[str] = set()


class LoopMarks:
    """The callbacks that mark. A framework's own callback class is the base beside it."""

    framework_id = 0
    framework_version = ""
    loads_between_batches = False  # the loop asks its loader between two batches, not within one

    def on_train_begin(self, logs: Any = None) -> None:
        name_framework(self.framework_id, self.framework_version)
        # A later `fit` goes on with the steps of the earlier one.
        if trace.lib is None and trace.open():
            assert trace.lib is not None
            trace.lib.step(-1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.enter_between()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._leave_between(abi.NO_BATCH)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._leave_between(abi.SAMPLES_UNKNOWN)
        if trace.lib is not None:
            trace.lib.phase_enter(abi.COMPUTE_UNDIVIDED)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.end_step()
        self.enter_between()

    def end_step(self) -> None:
        if trace.lib is not None:
            trace.lib.step(-1)
            trace.lib.phase_leave(abi.COMPUTE_UNDIVIDED)
            tell_end()

    def on_test_begin(self, logs: Any = None) -> None:
        enter(abi.EVALUATION)

    def on_test_end(self, logs: Any = None) -> None:
        leave(abi.EVALUATION)

    on_eval_begin, on_eval_end = on_test_begin, on_test_end  # Paddle's names

    def enter_between(self) -> None:
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


def enter(phase: int) -> None:
    if trace.lib is not None:
        trace.lib.phase_enter(phase)


def leave(phase: int) -> None:
    if trace.lib is not None:
        trace.lib.phase_leave(phase)


def tell_end() -> None:
    """A step has ended."""
    on_demand.boundary()
    for ended in marks.loop_ended:
        ended()


def bases(framework: ModuleType) -> tuple[type, ...]:
    """What a callback for this framework derives from, beside the framework's own class."""
    return () if framework.__name__ in marked else (LoopMarks,)


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


def steps(batches: Iterable[Any], first: int) -> Iterator[Any]:
    """What `paceline.steps` returns."""
    source = iter(batches)
    name_framework(*_jax())
    trace.open()
    for number in itertools.count(first):
        # An optimizer of PyTorch marks its phases itself.
        library = None if marks.optimizer_indices.any() else trace.lib
        if library is not None:
            library.loader_enter(0, 1)
        samples = abi.NO_BATCH
        try:
            batch = next(source)
            samples = samples_in(batch)
        except StopIteration:
            return
        finally:
            if library is not None:
                library.loader_leave(0, samples)
        if library is not None:
            library.phase_enter(abi.COMPUTE_UNDIVIDED)
        try:
            yield batch
            explicit_step(number)
        finally:
            if library is not None:
                library.phase_leave(abi.COMPUTE_UNDIVIDED)


def _jax() -> tuple[int, str]:
    jax = sys.modules.get("jax")
    return (0, "") if jax is None else (abi.JAX, str(jax.__version__))


def samples_in(batch: Any, depth: int = 4) -> int:
    """The first dimension of the first array in a batch. Of an array that lies on several hosts,
    this rank has a part only, and it is not known which.
    """
    try:
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if getattr(batch, "is_fully_addressable", True) else _UNKNOWN
        if depth == 0 or not isinstance(batch, (Mapping, tuple, list)):
            return _UNKNOWN
        parts = batch.values() if isinstance(batch, Mapping) else batch
        counts = (samples_in(part, depth - 1) for part in itertools.islice(parts, 16))
        return next((count for count in counts if count != _UNKNOWN), _UNKNOWN)
    except Exception:  # a program's own classes may do anything
        return _UNKNOWN
