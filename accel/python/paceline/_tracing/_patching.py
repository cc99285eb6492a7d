# SPDX-License-Identifier: Apache-2.0
"""Replaces functions of PyTorch, and puts the originals back. A function whose parameters are not
those of a tested version is left alone.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from paceline._core.log import say
from paceline._core.trace import trace

# Parameters of each patched function in the tested versions (1.13 and 2.14; what lies between
# shares them).
TESTED: dict[str, list[tuple[str, ...]]] = {
    "DataLoader.__next__": [("self",)],
    "torch.autograd.backward": [
        ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    ],
    "Optimizer.step": [("self",)],
    "GradScaler.step": [("self", "optimizer")],
    "torch.save": [
        ("obj", "f", "pickle_module", "pickle_protocol", "_use_new_zipfile_serialization"),
        (
            "obj",
            "f",
            "pickle_module",
            "pickle_protocol",
            "_use_new_zipfile_serialization",
            "_disable_byteorder_record",
        ),
    ],
}
_undo: list[Callable[[], None]] = []
_said: set[str] = set()


def undo_all() -> None:
    while _undo:
        _undo.pop()()
    trace.patches.clear()


def accept(what: str, function: Any, expected: list[tuple[str, ...]] | None = None) -> bool:
    code: Any = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else None
    if names is None or names not in (expected or TESTED[what]):
        trace.patches[what] = f"off: parameters {names} are not those of a tested PyTorch"
        say(
            f"{what} is not traced: its parameters are not those of a PyTorch that this release was"
            " tested with"
        )
        return False
    trace.patches[what] = "on"
    return True


def replace(owner: Any, name: str, replacement: Any) -> None:
    original = getattr(owner, name)
    setattr(owner, name, replacement)

    def undo() -> None:
        # A patch that another library has put over ours stays. It calls ours, which only calls on.
        if getattr(owner, name) is replacement:
            setattr(owner, name, original)

    _undo.append(undo)


def compiling(torch: ModuleType) -> Callable[[], bool]:
    """Returns a function that tells whether torch.compile traces the caller. If it does, wrappers
    call the original, so that no mark enters the graph.
    """
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def say_once(what: str, error: BaseException) -> None:
    if what not in _said:
        _said.add(what)
        say(f"{what} is not traced: {type(error).__name__}: {error}")
