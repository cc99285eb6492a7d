# SPDX-License-Identifier: Apache-2.0
"""Imports OpenMMLab's libraries without what their models never call: mmcv's compiled operators,
and packages that draw, read pictures or judge results, which are much larger than they are.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LEFT_OUT = (
    *("cv2", "matplotlib", "trimesh"),
    *("mat4py", "pycocotools", "scipy", "shapely", "numba"),
    *("lyft_dataset_sdk", "modelindex", "nuscenes", "prettytable", "terminaltables"),
    *("ftfy", "mmcv._ext"),
)


class Nothing(Warning):
    """Any name of a package that was left out: a class to derive from, a decorator that changes
    nothing, or a warning.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def __call__(self, decorated: Any) -> Any:
        return decorated


class Empty(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {})


class Finder(MetaPathFinder, Loader):
    """The last finder: packages that are installed are found before."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = fullname in LEFT_OUT or fullname.partition(".")[0] in LEFT_OUT
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextlib.contextmanager
def _without_the_rest() -> Iterator[None]:
    """Other libraries, which ask what is installed, never see the empty modules."""
    finder = Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if type(module) is Empty]:
            del sys.modules[name]


def library(name: str) -> Any:
    with _without_the_rest():
        return importlib.import_module(name)
