# SPDX-License-Identifier: Apache-2.0
"""Records some steps of this rank by PyTorch's profiler when the launcher asks for it (`paceline
trace`, docs/designs/traces.md).

The launcher writes its request into a small file that this process has mapped. So a step boundary
compares one number, and nothing is polled. The profiler runs on the training thread by its public
interface. The file is written by a thread, beside the request. Nothing here raises.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

from paceline._core.log import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_REQUEST_BYTES = 64
_SEQUENCE, _START, _STEPS = range(3)  # words of the request
_WORLD_RANK, _LIVE_STEP = 104, 1168  # where the ring's header has the rank and the current step
_STATE_BYTES = 1024
_COMPRESSION = 3  # most of the gain for a fraction of the time
_BLOCK = 1 << 20


class _Requests:
    def __init__(self) -> None:
        self.words: Sequence[int] = (0,)
        self.seen = 0
        self.busy = False  # a request waits for its step, or is being recorded
        self._files = ""  # what the names of this rank's files begin with
        self._ring: Callable[[], int] = lambda: -1
        self._state: dict[str, Any] = {}
        self._start = 0
        self._steps = 0
        self._last_step = 0
        self._recording: _Recording | None = None

    def install(self, file: str, ring: Callable[[], int]) -> None:
        """From now on a step boundary looks at this file. Requests of before are not for us."""
        try:
            with open(file, "rb") as opened:  # noqa: PTH123
                mapped = mmap.mmap(opened.fileno(), _REQUEST_BYTES, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            say(f"traces on demand are off: {error}")
            return
        (rank,) = struct.unpack("<i", os.pread(ring(), 4, _WORLD_RANK))
        self._files = os.path.join(os.path.dirname(file), f"rank-{rank}")  # noqa: PTH118, PTH120
        self._ring = ring
        self.words = memoryview(mapped).cast("Q")
        self.seen = self.words[_SEQUENCE]

    def look(self) -> None:
        try:
            if self.words[_SEQUENCE] != self.seen:
                self._take()
            if self.busy:
                self._advance()
        except Exception as error:  # training goes on
            self._give_up(f"{type(error).__name__}: {error}")

    def _take(self) -> None:
        self.seen = self.words[_SEQUENCE]
        self._discard()
        self._start, self._steps = self.words[_START], self.words[_STEPS]
        self.busy = self._steps > 0
        self._last_step = 0
        if self.busy:
            self._state = {"sequence": self.seen}
            self._tell("waiting")

    def _advance(self) -> None:
        (step,) = struct.unpack("<Q", os.pread(self._ring(), 8, _LIVE_STEP))
        if step == self._last_step:  # the same boundary: another optimizer, or paceline.step()
            return
        self._last_step = step
        if self._recording is None:
            if step + 1 >= self._start:
                self._begin(step)
        elif self._recording.advance():
            recording, self._recording = self._recording, None
            self.busy = False
            self._state["profilerStepZero"] = self._state["firstStep"] - recording.first_label
            self._tell("writing")
            recording.save(self._saved(self.seen))

    def _begin(self, step: int) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return self._give_up("the program does not use PyTorch")
        if _is_profiled(torch):
            return self._give_up("the program records a profile of its own")
        self._state.update(firstStep=step + 1, steps=self._steps)
        self._recording = _Recording(torch, f"{self._files}.json", self._steps, self._give_way)
        self._recording.start()
        self._tell("recording")
        return None

    def _give_way(self) -> None:
        self._give_up("the program began a profile of its own")

    def _give_up(self, reason: str) -> None:
        self.busy = False
        self._discard()
        self._tell("failed", reason)

    def _discard(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()

    def _saved(self, sequence: int) -> Callable[[str], None]:
        def saved(problem: str) -> None:
            if self.seen == sequence:
                self._tell("failed" if problem else "done", problem)

        return saved

    def _tell(self, state: str, reason: str = "") -> None:
        """Overwrites the state in place, so that it can be told on a full disk, too."""
        import json

        text = json.dumps({**self._state, "state": state, "reason": reason[:256]})
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            opened = os.open(f"{self._files}.state", flags, 0o644)
            try:
                os.pwrite(opened, text.encode()[:_STATE_BYTES].ljust(_STATE_BYTES), 0)
            finally:
                os.close(opened)
        except OSError as error:
            say(f"the state of the trace cannot be told: {error}")


class _Recording:
    """One use of torch.profiler.

    It warms up for one step, and then records. PyTorch has one profiler a process, and a second one
    raises an exception. So a profile that the program begins meanwhile ends this one first.
    """

    def __init__(self, torch: Any, file: str, steps: int, give_way: Callable[[], None]) -> None:
        action = torch.profiler.ProfilerAction

        def plan(number: int) -> Any:
            if number == 0:
                return action.WARMUP
            if number < steps:
                return action.RECORD
            return action.RECORD_AND_SAVE if number == steps else action.NONE

        self._profile = torch.profiler.profile(schedule=plan)
        self._file = file
        self._left = steps + 1
        self.first_label = 1  # the first recorded step is the profiler's ProfilerStep#1, or #0
        self._began_ns = 0  # the wall time when recording began
        # Debian's build has none: its profiler writes a bare list, whose times begin with it.
        self._has_kineto = bool(torch.autograd.kineto_available())
        self._give_way = give_way
        self._originals: list[tuple[Any, str, Any]] = []
        self._watched = (
            (torch.profiler.profile, "start"),
            (torch.profiler.profile, "step"),
            (torch.profiler.profile, "stop"),
            (torch.autograd.profiler.profile, "__enter__"),
        )

    def start(self) -> None:
        self._watch()
        self._profile.start()

    def advance(self) -> bool:
        """At a step boundary. True: all steps are recorded."""
        self._profile.step()
        if self._began_ns == 0:
            self._began_ns = time.time_ns()
            label = str(getattr(getattr(self._profile, "step_rec_fn", None), "name", ""))
            self.first_label = 0 if label.endswith("#0") else 1
        self._left -= 1
        if self._left == 0:
            self.stop()
        return self._left == 0

    def stop(self) -> None:
        """Also after the last step, so that PyTorch forgets this profile's count of steps."""
        self._unwatch()
        try:
            self._profile.__exit__(None, None, None)
        except Exception as error:
            say(f"the profiler of a trace could not be stopped: {error}")

    def save(self, saved: Callable[[str], None]) -> None:
        """Writes the file by a thread, and says then what went wrong, if anything."""
        import threading

        threading.Thread(target=self._save, args=(saved,), name="paceline-trace").start()

    def _save(self, saved: Callable[[str], None]) -> None:
        packed = self._file + ".gz"
        try:
            self._profile.export_chrome_trace(self._file)
            if self._has_kineto:
                _compress(self._file, packed)
            else:
                end = b', "baseTimeNanoseconds": %d}' % self._began_ns
                _compress(self._file, packed, b'{"traceEvents": ', end)
            problem = ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            _remove(packed)
        _remove(self._file)
        _remove(self._file + ".tmp")  # kineto's, if it could not write it to its end
        saved(problem)

    def _watch(self) -> None:
        import functools

        def yielding(original: Any) -> Any:
            @functools.wraps(original)
            def wrapper(profile: Any, *args: Any, **kwargs: Any) -> Any:
                if profile is not self._profile:
                    self._give_way()
                return original(profile, *args, **kwargs)

            return wrapper

        for owner, name in self._watched:
            original = owner.__dict__.get(name)
            self._originals.append((owner, name, original))
            setattr(owner, name, yielding(getattr(owner, name)))

    def _unwatch(self) -> None:
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _is_profiled(torch: Any) -> bool:
    # There is no public question. Without this one, a profile of the program would be broken.
    enabled = getattr(torch.autograd, "_profiler_enabled", None)
    return bool(enabled is not None and enabled())


def _compress(plain: str, packed: str, begin: bytes = b"", end: bytes = b"") -> None:
    import gzip
    import shutil

    # The profiler does not tell of a full disk: it leaves a part, or nothing.
    if not os.path.exists(plain):  # noqa: PTH110
        raise OSError(f"{plain} was not written; is the disk full?")
    with open(plain, "rb") as source:  # noqa: PTH123
        source.seek(max(0, os.fstat(source.fileno()).st_size - 64))
        if not source.read().rstrip().endswith(b"]" if begin else b"}"):
            raise OSError(f"{plain} is incomplete; is the disk full?")
        source.seek(0)
        part = packed + ".part"
        try:
            with gzip.open(part, "wb", compresslevel=_COMPRESSION) as target:
                target.write(begin)
                shutil.copyfileobj(source, target, _BLOCK)
                target.write(end)
            os.replace(part, packed)  # noqa: PTH105
        except BaseException:
            _remove(part)
            raise


def _remove(file: str) -> None:
    try:
        os.unlink(file)  # noqa: PTH108
    except OSError:  # it was never made
        pass


requests = _Requests()


def boundary(_: Any = None) -> None:
    """The end of a step, perhaps: an optimizer has stepped, or the program said so."""
    if requests.words[0] != requests.seen or requests.busy:
        requests.look()
