# SPDX-License-Identifier: Apache-2.0
"""The times of the GPU: tells the library on which CUDA stream each mark happens.

The stream is that of torch.cuda.current_stream(), asked at every mark, because a program may change
it between two. Nothing is asked before the program itself has started CUDA.
"""

from __future__ import annotations

import ctypes
import time
from types import ModuleType
from typing import Any, Callable

from paceline._core import library as abi
from paceline._core.log import say
from paceline._core.trace import DEVICE_TIMES, trace

# The marks that begin or end a phase of the training thread.
MARKS = (
    "loader_enter",
    "loader_leave",
    "backward_enter",
    "gradients_done",
    "backward_leave",
    "optimizer_enter",
    "optimizer_leave",
    "step",
)


def starter(torch: ModuleType) -> Callable[[abi.Library], None]:
    """Returns what the backward pass calls as long as `trace.device_pending`."""

    def start_once_used(library: abi.Library) -> None:
        if torch.cuda.is_initialized():
            _start(torch, library)

    return start_once_used


def _start(torch: ModuleType, library: abi.Library) -> None:
    why = ctypes.create_string_buffer(256)
    try:
        status = library.device_start(why, len(why), _cost(torch, library))
    except Exception as error:
        status, why.value = 1, f"{type(error).__name__}: {error}".encode()[:255]
    if status == abi.EORDER:  # this thread has not used the device yet: asked again
        return
    trace.device_pending = False
    if status != 0:
        _off(why.value.decode(errors="replace") or f"code {status}")
        return
    trace.device_kind = abi.CUDA
    trace.patches[DEVICE_TIMES] = "on"
    for name in MARKS:
        setattr(library, name, _on_stream(torch, library, name))


def _cost(torch: ModuleType, library: abi.Library) -> int:
    """What telling the stream costs at a mark, in ns."""
    rounds = 100
    before = time.perf_counter_ns()
    for _ in range(rounds):
        library.device_stream(torch.cuda.current_stream().cuda_stream)
    return (time.perf_counter_ns() - before) // rounds


def _on_stream(torch: ModuleType, library: abi.Library, name: str) -> Callable[..., int]:
    original: Callable[..., int] = getattr(library, name)
    current_stream: Callable[[], Any] = torch.cuda.current_stream
    tell = library.device_stream

    def mark(*arguments: int) -> int:
        try:
            tell(current_stream().cuda_stream)
        except Exception as error:
            stop(library)
            _off(f"{type(error).__name__}: {error}")
        return original(*arguments)

    mark.original = original  # type: ignore[attr-defined]
    return mark


def stop(library: abi.Library) -> None:
    """From now on the marks have no stream, and the library records nothing on the device. Also for
    a benchmark that compares with and without.
    """
    for name in MARKS:
        mark = getattr(library, name)
        setattr(library, name, getattr(mark, "original", mark))


def _off(reason: str) -> None:
    trace.patches[DEVICE_TIMES] = f"off: {reason}"
    say(f"{DEVICE_TIMES} are off: {reason}")
