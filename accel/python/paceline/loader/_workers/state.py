# SPDX-License-Identifier: Apache-2.0
"""What makes the samples of a loader, as far as it can be seen to change.

Workers have copies of it, so what they change is lost, and what the program changes they do not
see. Looked at are the attributes of the dataset, of those that it wraps and of the collate
function, with those of the program's own classes among them. So are the globals and closures that
the functions of these name. Nothing here changes an object.
"""

from __future__ import annotations

import collections
import dis
import functools
import itertools
import sys
import types
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch
from torch.utils.data import Dataset

from paceline.loader._workers.hazards import is_installed

NAMES = 64  # attributes of an object that are looked at
FUNCTIONS = 128  # of the program, for globals that they name
FEW = 16  # values of a dict that are compared between two batches
CONTENT = 20_000  # objects within one, looked at closely
BYTES = 1 << 20  # of an array, looked at closely
VALUES = (str, bytes, int, bool)
CONTAINERS = (list, tuple, dict, set, collections.deque, bytearray)
# Neither is changed as samples are made.
FIXED = (types.ModuleType, types.BuiltinFunctionType)

Place = tuple[str, Callable[[], Any]]


def shared(loader: Any) -> list[Place]:
    """Returns names of what the functions that make samples share with the program, and how to read
    each."""
    return [*_Shared().of((loader.dataset, loader.collate_fn))]


class _Shared:
    """Finds what functions share. Each class and function is visited once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._functions: collections.deque[types.FunctionType] = collections.deque()

    def of(self, roots: Iterable[Any]) -> Iterator[Place]:
        waiting = [(root, 0) for root in roots]
        for value, depth in waiting:
            yield from self._of_object(value)
            own = getattr(value, "__dict__", None)
            if isinstance(own, dict) and depth < 2 and not isinstance(value, types.FunctionType):
                held = [*itertools.islice(own.values(), NAMES)]
                waiting += [(each, depth + 1) for each in held if _makes_samples(each)]
        for _ in range(FUNCTIONS):
            if self._functions:
                yield from self._of_function(self._functions.popleft())

    def _of_object(self, value: Any) -> Iterator[Place]:
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            self._add(function)
        for kind in type(value).__mro__:
            yield from self._of_class(kind)

    def _of_class(self, kind: type) -> Iterator[Place]:
        if id(kind) in self._seen or is_installed(sys.modules.get(kind.__module__)):
            return
        self._seen.add(id(kind))
        for name, held in [*itertools.islice(vars(kind).items(), NAMES)]:
            function = getattr(held, "fget", None) or getattr(held, "__func__", held)
            if isinstance(function, types.FunctionType):
                self._add(function)
            elif not name.startswith("__") and not hasattr(type(held), "__get__"):
                yield f"{kind.__qualname__}.{name}", functools.partial(vars(kind).get, name)

    def _add(self, function: types.FunctionType) -> None:
        if id(function) not in self._seen:
            self._seen.add(id(function))
            if not is_installed(sys.modules.get(function.__module__ or "")):
                self._functions.append(function)

    def _of_function(self, function: types.FunctionType) -> Iterator[Place]:
        """Yields what a function names. The program's functions among that are visited later."""
        names = function.__globals__
        places: list[Place] = [
            (name, functools.partial(names.get, name))
            for name in _globals_of(function.__code__)
            if name in names
        ]
        for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars):
            places.append((name, functools.partial(getattr, cell, "cell_contents", None)))
        for name, read in places:
            held = _read(read)
            if isinstance(held, types.FunctionType):
                self._add(held)
                self._add(getattr(held, "__wrapped__", held))
            elif isinstance(held, type):
                yield from self._of_class(held)
            elif not isinstance(held, FIXED):
                yield name, read


@functools.lru_cache(maxsize=1024)
def _globals_of(code: types.CodeType) -> tuple[str, ...]:
    """Returns the globals that a function reads or writes, with those of functions within it."""
    found = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "STORE_GLOBAL")
    }
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found.update(_globals_of(inner))
    return tuple(sorted(found))


def _makes_samples(value: Any) -> bool:
    return isinstance(value, Dataset) or callable(value)


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError:  # a cell that is still empty
        return None


def fingerprint(loader: Any, places: Iterable[Place] = (), closely: bool = False) -> dict[str, Any]:
    """Returns what can be seen of the state that makes the samples.

    Args:
        places: what `shared` has found.
        closely: looks into containers, which takes some milliseconds.
    """
    state = _content if closely else _state
    found: dict[str, Any] = {name: state(_read(read)) for name, read in places}
    waiting = [("dataset", loader.dataset, 0), ("collate_fn", loader.collate_fn, 0)]
    for path, value, depth in waiting:
        own = getattr(value, "__dict__", None)
        if not isinstance(own, dict) or isinstance(value, types.FunctionType):
            continue
        for name in [*itertools.islice(own, NAMES)]:
            held = own.get(name)
            found[f"{path}.{name}"] = state(held)
            if depth < 2 and _makes_samples(held):
                waiting.append((f"{path}.{name}", held, depth + 1))
    return found


def _state(value: Any) -> Any:
    """Returns a value that differs after the object was exchanged or grew."""
    if type(value) in VALUES:
        return value
    if type(value) is float:
        return value if value == value else None  # not a number is not equal to itself
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, dict) and len(value) <= FEW:
        held = [each for each in value.values() if type(each) in VALUES]
        return id(value), len(value), held
    if isinstance(value, CONTAINERS):
        return id(value), len(value)
    return id(value)


def _content(value: Any) -> Any:
    """Returns a value that differs also after something within the object was exchanged."""
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        whole = getattr(value, "nbytes", 0) <= BYTES
        return id(value), zlib.crc32(value.tobytes()) if whole else 0
    if not isinstance(value, CONTAINERS):
        return _state(value)
    found: list[Any] = []
    waiting = [value]
    for held in waiting:
        found.append((id(held), len(held)))
        if isinstance(held, bytearray):
            continue
        each = held.values() if isinstance(held, dict) else held
        for inner in itertools.islice(each, max(0, CONTENT - len(found))):
            found.append(_state(inner))
            if isinstance(inner, CONTAINERS) and len(waiting) < CONTENT:
                waiting.append(inner)
    if isinstance(value, list) and len(value) > CONTENT:
        found.append(value.count(None))  # of a cache that is made at its full length
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Returns the name of what differs, or an empty text."""
    if before == after:
        return ""
    names = [*after, *(name for name in before if name not in after)]
    return next(
        name
        for name in names
        if name not in before or name not in after or before[name] != after[name]
    )
