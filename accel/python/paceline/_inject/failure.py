# SPDX-License-Identifier: Apache-2.0
"""Tells the launcher at once that an exception ends this rank.

Other ranks lose their peer then, and may end before Python has ended here. The job's status must
still name this rank as the first.

sitecustomize calls `watch` in the outermost Python process of a rank. The launcher reads the file
in launcher/process/failure_file.cpp.
"""

from __future__ import annotations

import os
import sys
import time

# Not typing's own: importing it would cost every Python program of the container some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

# Texts of exceptions that mean that the other end is gone: of gloo and sockets, PyTorch's store,
# gRPC (JAX, TensorFlow), and PyTorch about NCCL's ncclRemoteError.
LOST_A_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Did the remote server shutdown or crash",
    "Socket closed",
    "remote process exited or there was a network error",
)


def watch(file: str) -> None:
    """Writes uncaught exceptions of the main thread to `file`, after they are printed.

    The text is "NANOSECONDS own PID", by the monotonic clock. If the exception says that another
    rank failed before, it is "NANOSECONDS peer PID". The note of an earlier program is removed,
    because that program has not ended the rank. Never raises.
    """
    before, process = sys.excepthook, os.getpid()
    try:
        os.unlink(file)  # noqa: PTH108
    except OSError:  # no earlier note
        pass

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        now = time.monotonic_ns()
        try:
            before(kind, error, trace)
        finally:
            # The interpreter sets `last_value` before it calls the hook. A program that reports an
            # error by this hook, and goes on, does not. A forked child is another process.
            if os.getpid() == process and getattr(sys, "last_value", None) is error:
                _write(file, f"{now} {'peer' if _blames_a_peer(error) else 'own'} {process}\n")

    # Programs ask whether the hook is Python's own before they set theirs, and call Python's own
    # from theirs.
    if before is sys.__excepthook__:
        sys.__excepthook__ = excepthook
    sys.excepthook = excepthook


def _blames_a_peer(error: BaseException | None) -> bool:
    """Whether the exception, or a cause of it, is the loss of a peer. `of_peer` is CommError's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if getattr(error, "of_peer", False) is True or any(
            text in _text_of(error) for text in LOST_A_PEER
        ):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the program's own class may raise
        return ""


def _write(file: str, text: str) -> None:
    """Writes the file whole or not at all, since the launcher may read it at any time."""
    part = f"{file}.{os.getpid()}"
    try:
        with open(part, "w") as out:  # noqa: PTH123 - pathlib would be imported into every program
            out.write(text)
        os.replace(part, file)  # noqa: PTH105
    except OSError:  # a full disk, a folder that is gone: the launcher goes by exits alone
        pass
