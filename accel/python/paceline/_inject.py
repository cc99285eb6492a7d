# SPDX-License-Identifier: Apache-2.0
"""The two ways into a program that does not know Paceline.

PyTorch 2.5 and later calls `on_torch` itself, at the end of `import torch` (entry point group
torch.backends, found by the dist-info folder on PYTHONPATH). For older ones sitecustomize calls
`when_torch_is_imported`, which does the same from the import machinery. torch turns an exception of
an entry point into a failed `import torch`, so nothing leaves this file.

It runs in every Python process of the container, torchrun's agent, loader workers and helper tools
included: all it does there is to replace a few functions; the library is loaded and the ring opened
by the first training mark.
"""

from __future__ import annotations

import os
import sys

# Not typing's own: importing it would cost every Python program of the container some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

# Of the jobs that were written for Baidu's AIAK-Training.
AIAK = ("AIAK_HIERARCHICAL_ALLREDUCE", "AIAK_FP16_COMPRESSION", "AIAK_POWERSGD_COMPRESSION")

_done = False


def disabled() -> bool:
    return os.environ.get("PACELINE_DISABLE") == "1"


def say(text: str) -> None:
    """One line, for things that are off and why."""
    try:
        sys.stderr.write(f"paceline: {text}\n")
    except Exception:  # a closed stderr
        pass


def on_torch() -> None:
    """Patches PyTorch, once. Called while `import torch` is ending."""
    global _done
    if _done or disabled():
        return
    _done = True
    try:
        from paceline import _torch_marks

        _torch_marks.install(sys.modules["torch"])
    except BaseException as error:  # fail open: training goes on without telemetry
        say(f"tracing is off: {type(error).__name__}: {error}")
    # Nothing of it is imported unless the job asks.
    if os.environ.get("PACELINE_OPTIMIZER", "") not in ("", "Disabled"):
        try:
            from paceline.optim import _patch

            _patch.install()
        except BaseException as error:
            say(f"PyTorch's optimizers are left as they are: {type(error).__name__}: {error}")
    if os.environ.get("PACELINE_LOADER", "") not in ("", "Disabled"):
        try:
            from paceline.loader import _patch as loader_patch

            loader_patch.install()
        except BaseException as error:
            say(f"PyTorch's loaders are left as they are: {type(error).__name__}: {error}")
    if os.environ.get("PACELINE_PRECISION", "") not in ("", "Disabled"):
        try:
            from paceline import _precision

            _precision.install()
        except BaseException as error:
            say(f"models compute as they are written: {type(error).__name__}: {error}")
    asked = os.environ.get("PACELINE_COMMUNICATION", "")
    if asked not in ("", "Disabled") or (
        asked != "Disabled" and any(os.environ.get(name) == "1" for name in AIAK)
    ):
        try:
            from paceline.comm import _patch as comm_patch

            comm_patch.install()
        except BaseException as error:
            say(f"gradients are communicated by PyTorch: {type(error).__name__}: {error}")


def when_torch_is_imported() -> None:
    """For PyTorch below 2.5: does what the entry point does, after torch has been imported."""

    def imported(torch: ModuleType) -> None:
        if _version(torch) < (2, 5):
            on_torch()

    after_import("torch", imported)


def _version(torch: ModuleType) -> tuple[int, int]:
    numbers = str(getattr(torch, "__version__", "0.0")).split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        return 0, 0


class _Loader:
    """Loads as the real loader does, then calls back; puts the real loader back first, so that
    nothing sees this one.
    """

    def __init__(self, real: Any, callback: Callable[[ModuleType], None]) -> None:
        self._real = real
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: Any) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        _finder.waiting.pop(module.__name__, None)
        try:
            self._callback(module)
        except BaseException as error:
            say(f"tracing of {module.__name__} is off: {type(error).__name__}: {error}")


class _Finder:
    """A meta path finder that finds no module; it wraps the loader of the modules waited for."""

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        # Programs also ask whether torch is there without importing it, so a find does not end the
        # waiting.
        callback = self.waiting.get(name)
        if callback is None:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, callback)
                return spec
        return None


_finder = _Finder()


def after_import(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Calls back when the module has been imported: at once if it has been."""
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    _finder.waiting[name] = callback
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
