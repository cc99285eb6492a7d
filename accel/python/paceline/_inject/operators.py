# SPDX-License-Identifier: Apache-2.0
"""What all patches of fused operators share: the switch, the functions that take the places of
methods, and the one status that explain() shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

from paceline._core import contract, reports
from paceline._core.imports import after_import
from paceline._core.log import say
from paceline._core.switches import why_off
from paceline._core.untraced import untraced

NOT_OURS: Any = object()
_MOST_REASONS = 16  # that are told of one class


@dataclass
class Trial:
    """What has become of the tuner's trial (operators_trial.py)."""

    has_begun: bool = False
    idle: str = ""  # why no operator computes just now
    waits: str = ""  # what it waits for
    told: str = ""  # what it showed, or why there is none
    gain: float | None = None
    rolled_back: bool = False


trial = Trial()
# Begins the trial when the first class is patched, and returns what ends it.
begin_trial: Callable[[], Callable[[], None]] | None = None

_undo: list[Callable[[], None]] = []
classes: list[Patched] = []
_switch: str | None = None  # as why_off; None if no module of patches is installed
_installed: list[Callable[[ModuleType], None]] = []


def install(modules: Iterable[str], patch: Callable[[ModuleType], None]) -> None:
    """Calls `patch` with each of these modules, now or when it is imported. The second call does
    nothing.
    """
    global _switch
    if _switch is None:
        _switch = why_off(contract.OPERATORS, "models are", "fused operators")
        reports.register(reports.OPERATORS, status)
    if _switch or patch in _installed:
        return
    _installed.append(patch)
    for name in sorted(set(modules)):
        after_import(name, functools.partial(_patch_unless_off, patch))


def decide(off: str) -> None:
    """Lets the program decide in place of the job. `off`: why it keeps all originals, as why_off,
    or empty.
    """
    global _switch
    if off:
        uninstall()
    if off or _switch is None:
        _switch = off
    reports.register(reports.OPERATORS, status)


def _patch_unless_off(patch: Callable[[ModuleType], None], library: ModuleType) -> None:
    if _switch == "":  # else it has been uninstalled before the import
        patch(library)


def uninstall() -> None:
    """Puts all originals back."""
    global _switch, trial
    while _undo:
        _undo.pop()()
    classes.clear()
    _installed.clear()
    _switch, trial = None, Trial()


class Patched:
    """One class of which a method is replaced, and what became of its calls."""

    by_itself = "computes by itself"
    # Whether torch.compile traces the original. Else it calls the patched method, outside graphs.
    compiles = True

    def __init__(self, name: str, never: str = "") -> None:
        self.name, self.never = name, never
        self.computed = 0
        self._left: dict[str, int] = {}  # calls by the reason for which they are the library's

    def __call__(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Makes the call, or returns NOT_OURS if it is the library's."""
        raise NotImplementedError

    def _say(self, why: str, more: str = "") -> None:
        if why not in self._left and len(self._left) < _MOST_REASONS:
            say(f"{self.name} {self.by_itself}: {why}{more}")

    def _leave(self, why: str) -> Any:
        if why in self._left or len(self._left) < _MOST_REASONS:
            self._left[why] = self._left.get(why, 0) + 1
        return NOT_OURS

    def told(self) -> dict[str, Any]:
        parts = [f"{self.computed} calls computed, class Reordered"] if self.computed else []
        if self.computed and (trial.told or trial.waits):
            parts.append(trial.told or f"gain not yet known: {trial.waits}")
        parts += [f"{count} by the library ({why})" for why, count in sorted(self._left.items())]
        if self.never:
            parts = [f"left as it is ({self.never})"]
        reasons = [self.never] if self.never else sorted(self._left)
        if self.computed and trial.rolled_back:
            reasons = [trial.told]
        met = self.computed or reasons
        acts = self.computed and not trial.rolled_back
        return {
            "name": self.name,
            "state": "on" if acts else "off" if met else "waiting",
            "reason": "; ".join(reasons) if met else "no call yet",
            "computed": self.computed,
            "left": sum(self._left.values()),
            "gain": trial.gain if self.computed else None,
            "text": "; ".join(parts) or "no call yet",
        }


def replace(owner: Any, method: str, original: Any, patched: Patched) -> None:
    there = _around(original, patched)
    setattr(owner, method, there if patched.compiles else untraced(there))
    _undo.append(functools.partial(setattr, owner, method, original))
    classes.append(patched)
    if begin_trial is None or trial.has_begun:
        return
    trial.has_begun = True
    try:
        _undo.append(begin_trial())
    except Exception as error:  # the class computes all the same
        trial.told = no_trial(f"{type(error).__name__}: {error}")
        say(f"operators: {trial.told}")


def no_trial(why: str) -> str:
    return f"left on without a trial: {why}"


def _around(original: Any, ours: Callable[..., Any]) -> Any:
    """Returns the function that takes the original's place.

    torch.jit.script compiles the source of the original, which it finds by __wrapped__, with the
    names that this function sees. So it sees those of the library's file: it uses no global name
    of its own, and torch.compile can follow it to the original.
    """
    compiler = getattr(torch, "compiler", None)
    paceline_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)
    paceline_original, paceline_ours, paceline_not_ours = original, ours, NOT_OURS

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not paceline_compiling():
            paceline_result = paceline_ours(self, args, kwargs)
            if paceline_result is not paceline_not_ours:
                return paceline_result
        return paceline_original(self, *args, **kwargs)

    there = FunctionType(
        forward.__code__, original.__globals__, original.__name__, None, forward.__closure__
    )
    return functools.update_wrapper(there, original)


def status() -> reports.Status:
    seen = [each.told() for each in classes]
    if _switch != "":
        return reports.Status(_switch or "off (uninstalled)", seen)
    acting = [each for each in seen if each["state"] == "on"]
    if acting:
        names = ", ".join(f"{each['name']}: {each['computed']} calls" for each in acting)
        return reports.Status(f"on for {names}", seen)
    met = [each for each in seen if each["state"] == "off"]
    if met:
        reasons = "; ".join(f"{each['name']}: {each['reason']}" for each in met)
        return reports.Status(f"off ({reasons})", seen)
    # Whether it acts is not known before the first call.
    waits_for = "no call yet" if seen else "no model that it knows has been imported"
    return reports.Status(f"on ({waits_for})", seen)
