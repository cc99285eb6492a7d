# SPDX-License-Identifier: Apache-2.0
"""Kernel windows (docs/designs/kernel-window.md), as far as Python has a part in them: PyTorch's
profiler gets CUPTI to itself while it runs, and paceline.explain() says what the windows did.

The CUDA driver has loaded the library of the windows. Here it is only looked up.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

from paceline._core import contract, reports
from paceline._core.environment import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

VARIABLE = "CUDA_INJECTION64_PATH"
LIBRARY = "libpaceline_cupti.so"


class _Report(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("windows", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("cancelled", ctypes.c_uint32),
        ("lost", ctypes.c_uint64),
        ("cupti_ns", ctypes.c_uint64),
        ("before_ns", ctypes.c_uint64),
        ("inside_ns", ctypes.c_uint64),
        ("after_ns", ctypes.c_uint64),
        ("off", ctypes.c_char * 256),
    ]


def _library() -> Any:
    """The library, if the CUDA driver has loaded it into this process, else None."""
    path = os.environ.get(VARIABLE, "")
    if os.path.basename(path) != LIBRARY:  # noqa: PTH119
        return None
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):  # not loaded; a system without RTLD_NOLOAD
        return None


def request(steps: int) -> bool:
    """Asks for a window of so many steps. False if this process has no windows."""
    library = _library()
    return library is not None and library.paceline_window_request(ctypes.c_uint32(steps)) == 0


def install(torch: ModuleType) -> None:
    """Called when PyTorch has been imported, with a library of ours in CUDA_INJECTION64_PATH."""
    profiler = torch.profiler.profile
    profiler.start = _yielding(profiler.start)
    profiler.stop = _returning(profiler.stop)
    older = torch.autograd.profiler.profile
    older.__enter__ = _yielding(older.__enter__)
    older.__exit__ = _returning(older.__exit__)
    reports.register(reports.WINDOWS, status)


def _yielding(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        paused = _pause(self)
        try:
            return function(self, *args, **kwargs)
        except BaseException:
            if paused:
                _resume(self)
            raise

    return called


def _returning(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        finally:
            _resume(self)

    return called


def _pause(profile: Any) -> bool:
    """Keeps CUPTI free for this profile. False if it is already, or there are no windows."""
    with contextlib.suppress(Exception):
        library = _library()
        if library is not None and not getattr(profile, "_paceline_paused", False):
            profile._paceline_paused = True
            library.paceline_window_pause()
            return True
    return False


def _resume(profile: Any) -> None:
    with contextlib.suppress(Exception):
        if getattr(profile, "_paceline_paused", False):
            profile._paceline_paused = False
            _library().paceline_window_resume()


def status() -> reports.Status:
    if told(contract.KERNEL_WINDOWS) == "Disabled":
        return reports.Status(f"off ({contract.KERNEL_WINDOWS} is Disabled)", [])
    path = os.environ.get(VARIABLE, "")
    if path and os.path.basename(path) != LIBRARY:  # noqa: PTH119
        return reports.Status(f"off ({VARIABLE}={path} is the job's own)", [])
    library = _library()
    if library is None:
        return reports.Status("off (CUDA has not been started in this process)", [])
    report = _Report(size=ctypes.sizeof(_Report))
    library.paceline_window_report(ctypes.byref(report))
    off = report.off.decode(errors="replace")
    seen = list(_seen(report))
    return reports.Status(f"off ({off})" if off else f"on ({_count(report)})", seen)


def _count(report: _Report) -> str:
    return f"{report.windows} windows, {report.steps} steps"


def _seen(report: _Report) -> Iterator[dict[str, Any]]:
    if report.off and report.windows:
        yield _entry("windows", f"{_count(report)} before")
    if report.cancelled:
        yield _entry("cut short", f"{report.cancelled} windows, by another profiler or the end")
    if report.lost:
        yield _entry("lost", f"{report.lost} records: the steps are marked as truncated")
    if report.before_ns and report.inside_ns:
        inside = report.inside_ns / report.before_ns - 1
        text = f"a step took {report.before_ns / 1e6:.2f} ms before, {inside:+.1%} in windows"
        if report.after_ns:
            text += f", {report.after_ns / report.before_ns - 1:+.1%} between windows"
        yield _entry("cost", text)


def _entry(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "state": "on", "text": text}
