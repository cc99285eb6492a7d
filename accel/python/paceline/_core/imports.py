# SPDX-License-Identifier: Apache-2.0
"""Calls a function when a module has been imported, without importing it.

sitecustomize imports this file into every Python process of the container, so it imports little.
"""

from __future__ import annotations

import sys

# typing itself is not imported: that takes some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class _Loader:
    """Loads as the real loader does, then calls back. It puts the real loader back first, so that
    the program never sees this one.
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
            from paceline._core.log import say

            say(f"tracing of {module.__name__} is off: {type(error).__name__}: {error}")


class _Finder:
    """A meta path finder that finds no module. It wraps the loaders of the modules that callbacks
    wait for.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[ModuleType], None]] = {}
        self.asked: dict[str, Callable[[], None]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        # A program may ask whether torch is installed and import it later, so the callback stays.
        callback = self.waiting.get(name)
        if callback is None:
            return None
        if name in self.asked:
            self.asked[name]()
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
    """Calls back when the module has been imported: at once if it has been already."""
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    _finder.waiting[name] = callback
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def before_import(name: str, callback: Callable[[], None]) -> None:
    """Calls back whenever a program looks for a module that `after_import` waits for. The last call
    is that of its import.
    """
    _finder.asked[name] = callback
