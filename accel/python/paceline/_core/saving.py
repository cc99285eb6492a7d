# SPDX-License-Identifier: Apache-2.0
"""Saves at the same step on all ranks before the job's pods go, or when they soon may
(docs/designs/ending.md).

This process tells its step in a file of its own, and then looks at the launcher's request, which it
has mapped. So the launcher either knows that this step is over, or has this rank wait in it until
all launchers have agreed on a step.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

from paceline._core import contract
from paceline._core.environment import told
from paceline._core.log import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_REQUEST_BYTES = 64
_STEP, _ASKED = 1, 2  # words of the request: the step, 0 until it is known; whether to save
_GO_ON = 2  # the second word while no pod goes, and the ranks are to train on after the save
_LOOK = 0.001  # seconds between two looks while the step is not known
# Launchers that do not agree within this time have lost each other, and the ranks stop.
_LONGEST_WAIT = 60.0


class Saving:
    """One per process. A program calls it from one thread."""

    def __init__(self) -> None:
        self.by_program = False  # the program asks by itself, so no framework does for it
        self.go_on = False  # no pod goes after the last save that was asked for
        self._opened = False
        self._words: Sequence[int] = ()
        self._own = -1
        self._step = 0
        self._asked = 0  # the step of the last save + 1, once one was asked for
        self._answered = 0  # the request that it answered
        self._saved = False

    def requested(self, step: int) -> bool:
        """At a step boundary. -1: the boundaries are counted."""
        if not self._opened:
            self._open()
        if not self._words:
            return False
        self._saved = self._asked > 0
        self._step = max(self._step, step) if step >= 0 else self._step + 1
        self._tell()
        if not self._words[_ASKED] or not self._has_come():
            return False
        self._asked = self._step + 1
        self._saved = False
        self._tell()
        return True

    def saved(self) -> None:
        if self._asked and not self._saved:
            self._saved = True
            self._tell()

    def finished(self) -> None:
        """Training has ended by itself. The launcher takes a rank that exits before it was at a
        later step than the save for one that has left because of the save."""
        if self._asked > self._step:
            self._step = self._asked
            self._saved = True
            self._tell()

    def drop(self) -> None:
        """In a forked child, which is no rank."""
        self.__init__()  # type: ignore[misc]
        self._opened = True

    def _open(self) -> None:
        self._opened = True
        file = told(contract.SAVE_REQUEST)
        if not file:
            return
        try:
            with open(file, "rb") as opened:  # noqa: PTH123
                mapped = mmap.mmap(opened.fileno(), _REQUEST_BYTES, access=mmap.ACCESS_READ)
            own = os.path.join(os.path.dirname(file), str(os.getpid()))  # noqa: PTH118, PTH120
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._own = os.open(own, flags, 0o644)
        except (OSError, ValueError) as error:
            say(f"this rank cannot be asked to save: {error}")
            return
        self._words = memoryview(mapped).cast("Q")
        os.register_at_fork(after_in_child=self.drop)

    def _has_come(self) -> bool:
        """Whether this is the step to save at. Waits until that is known."""
        until = time.monotonic() + _LONGEST_WAIT
        while asked := self._words[_ASKED]:
            step = self._words[_STEP]
            if step:
                if step == self._answered or self._step < step:
                    return False
                # Requests of one attempt name ever later steps, so no other is like this one.
                self._answered = step
                self.go_on = asked == _GO_ON
                return True
            if time.monotonic() > until:
                say("the launchers have not agreed on a step to save at: this rank goes on")
                self._words = ()
                return False
            time.sleep(_LOOK)
        return False

    def _tell(self) -> None:
        os.pwrite(self._own, struct.pack("=QQQ", self._step, self._asked, self._saved), 0)


saving = Saving()


def requested(step: int) -> bool:
    """What `paceline.save_requested` returns."""
    saving.by_program = True
    return saving.requested(step)
