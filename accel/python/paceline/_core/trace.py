# SPDX-License-Identifier: Apache-2.0
"""The trace of this process, as the framework layers see it: opened by the first training mark,
closed at exit, dropped in forked children. `lib` is None until it is open; a mark looks at that one
attribute first.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import time

from paceline._core import contract, marks, on_demand
from paceline._core import library as abi
from paceline._core.environment import disabled, told
from paceline._core.library import CPU, CUDA, HOST_MARKS, Library, Options
from paceline._core.log import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from paceline._core.records import Step

ENDED = "closed"  # the reason of a trace that was open
# A bit for each phase of a loop whose every part is marked.
ALL_HOST_PHASES = sum(
    1 << phase
    for phase in (
        abi.DATA_WAIT,
        abi.FORWARD,
        abi.BACKWARD,
        abi.OPTIMIZER,
        abi.CHECKPOINT,
        abi.EVALUATION,
        abi.OTHER,
    )
)
DEVICE_TIMES = "device times"  # their name among the patches
# Called once the trace is open: this process trains.
when_open: list[Callable[[], None]] = []


class Trace:
    """One per process. Not locked: the interpreter lock makes `open` safe, the library's own lock
    the marks.
    """

    def __init__(self) -> None:
        self.lib: Library | None = None
        self.refused = False  # tried and failed, or a forked child: never tried again
        self.reason = "no training mark yet"
        self.mark_cost_ns = 0
        self.host_phases = 0
        self.framework_id = 0
        self.framework_version = b""
        self.device_kind = CPU  # where the program computes, as far as the first mark can tell
        self.device_pending = True  # whether times of a device may still start
        self.patches: dict[str, str] = {}  # what of the framework is marked, or why not
        self._last: list[Step] = []  # of a trace that has ended

    def open(self) -> bool:
        """Opens at the first training mark. False: leave everything as it is."""
        if self.lib is not None:
            return True
        if self.refused or disabled() or _in_loader_worker():
            return False
        self.refused = True  # until it has worked
        try:
            library = Library()
            self.mark_cost_ns = _mark_cost(library)
            self.device_kind = CUDA if _uses_a_gpu() else CPU
            options = Options(
                size=ctypes.sizeof(Options),
                framework_id=self.framework_id,
                device_kind=self.device_kind,
                host_phases=self.host_phases,
                framework_version=self.framework_version,
                capabilities=HOST_MARKS,
                mark_cost_ns=self.mark_cost_ns,
            )
            status = library.open(options)
            if status != 0:
                reason = os.strerror(library.system_error()) if status == -4 else f"code {status}"
                raise OSError(f"the ring could not be opened: {reason}")
        except Exception as error:
            self.reason = f"{type(error).__name__}: {error}"
            say(f"tracing is off: {self.reason}")
            return False
        self.refused = False
        self.reason = "a training mark was seen"
        self.lib = library
        atexit.register(self.close)
        try:
            if told(contract.TRACE_REQUEST):
                on_demand.requests.install(told(contract.TRACE_REQUEST), library.ring_fd)
            for begin in when_open:
                begin()
        except Exception as error:  # no thread, no descriptor: training goes on without
            say(f"traces and log_to are off: {type(error).__name__}: {error}")
        return True

    def steps(self) -> list[Step]:
        """The last steps, also of a trace that has ended."""
        if self.lib is not None:
            from paceline._core import records

            with contextlib.suppress(OSError):
                return records.read(self.lib.ring_fd())
        return self._last

    def close(self) -> None:
        self._last = self.steps()
        library, self.lib = self.lib, None
        if library is not None:
            self.refused = True
            self.reason = ENDED
            library.close()

    def drop(self) -> None:
        """In a forked child of a process with a ring."""
        if self.lib is not None:
            self.lib = None
            self.refused = True
            self.reason = "a forked child"
            atexit.unregister(self.close)


def _in_loader_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None


def _uses_a_gpu() -> bool:
    """Whether the program has begun to use a GPU. Asking does not start CUDA."""
    torch = sys.modules.get("torch")
    try:
        return torch is not None and bool(torch.cuda.is_initialized())
    except AttributeError:  # TensorFlow and Paddle come without it
        return False


def _mark_cost(library: Library) -> int:
    """What one mark costs on the side of Python, in ns: a call as the wrappers make it, into a
    library that returns at once because it is not open yet. The library adds its own side when it
    opens.
    """

    def wrapped() -> None:
        try:
            library.optimizer_enter(0)
        finally:
            library.optimizer_leave(0)

    rounds = 200
    before = time.perf_counter_ns()
    for _ in range(rounds):
        wrapped()
    return (time.perf_counter_ns() - before) // (2 * rounds)


trace = Trace()
os.register_at_fork(after_in_child=trace.drop)


def explicit_step(number: int) -> None:
    if trace.open():
        assert trace.lib is not None
        trace.lib.step(number)
        on_demand.boundary()
        for ended in marks.loop_ended:
            ended()
