# SPDX-License-Identifier: Apache-2.0
"""Lets the launcher ask this process where it is, also while the interpreter hangs.

Python's faulthandler writes the stacks of all threads when a signal comes. It needs neither the
interpreter's lock nor memory. It writes to a file without a name, which the launcher finds among
the descriptors of this process (launcher/process/python_stack.cpp).

A program that uses the signal itself keeps it: nothing is registered if it has a handler, and all
is taken back before the program sets one.
"""

from __future__ import annotations

import os

# Not typing's own: importing it would cost every Python program of the container some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

SIGNAL = 61  # kStackSignal of the launcher
FILE_NAME = "paceline-stacks"
# Programs that close descriptors, or count them, look at the low numbers.
_LEAST_DESCRIPTOR = 512

_descriptor = -1


def install() -> None:
    """Registers the signal, once in a process. Never raises."""
    global _descriptor
    if _descriptor >= 0:
        return
    try:
        # What `signal` is made of; importing that takes a millisecond.
        import _signal  # type: ignore[import-not-found]
        import faulthandler

        if _signal.getsignal(SIGNAL) != _signal.SIG_DFL:
            return
        _descriptor = _high(_nameless_file())
        faulthandler.register(SIGNAL, file=_descriptor, all_threads=True, chain=False)
    except Exception:  # an old system, no descriptors left: a hang is told without stacks
        _forget()
        return
    from paceline._core.imports import after_import

    after_import("signal", _watch_signals)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(FILE_NAME, os.MFD_CLOEXEC)
    # Python that was built for an old C library.
    path = f"/dev/shm/{FILE_NAME}-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)  # noqa: PTH108 - pathlib would be imported into every program
    return descriptor


def _high(descriptor: int) -> int:
    """The same file under a high number, always writing at its end: the launcher empties it."""
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LEAST_DESCRIPTOR)
    except OSError:  # fewer descriptors are allowed
        return descriptor
    os.close(descriptor)
    return high


def _forget() -> None:
    global _descriptor
    descriptor, _descriptor = _descriptor, -1
    if descriptor >= 0:
        os.close(descriptor)


def _watch_signals(module: ModuleType) -> None:
    """Makes room before the program sets a handler of its own for the signal."""
    original: Any = module.signal

    def signal(signalnum: Any, handler: Any) -> Any:
        if _descriptor >= 0 and signalnum == SIGNAL:
            import faulthandler

            faulthandler.unregister(SIGNAL)
            _forget()
        return original(signalnum, handler)

    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(signal, name, getattr(original, name))
    signal.__wrapped__ = original  # type: ignore[attr-defined]
    module.signal = signal  # type: ignore[attr-defined]
