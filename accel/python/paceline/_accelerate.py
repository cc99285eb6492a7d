# SPDX-License-Identifier: Apache-2.0
"""paceline.accelerate: does in one line what a job's spec.acceleration does to a program. What
cannot be sped up is left as it is, and paceline.explain() says why. It raises only for wrong
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from paceline import amp
from paceline._core import contract
from paceline._core.environment import disabled, told
from paceline._core.log import say
from paceline._core.switches import NUMERICS
from paceline.amp import _patch as _precision
from paceline.amp import _report as _precision_report
from paceline.loader import accelerate as _accelerate_loader
from paceline.optim import _patch as _optimizers
from paceline.optim import _report as _optimizer_report

_WHAT = "paceline.accelerate: "


@dataclass(frozen=True)
class Settings:
    """The keyword arguments of paceline.accelerate, spelt as spec.acceleration spells them."""

    numerics: str
    precision: str | None  # None: as the job says
    fused: bool
    prefetch_next_epoch: bool | None


def settings(
    numerics: str, precision: str | None, fused: bool, prefetch_next_epoch: bool | None
) -> Settings:
    """Checks the arguments. The job's numerics class bounds the program's."""
    numerics = _word("numerics", numerics, NUMERICS)
    if precision is not None:
        precision = _word("precision", precision, contract.VALUES[contract.PRECISION])
    _flag("fused", fused, (True, False))
    _flag("prefetch_next_epoch", prefetch_next_epoch, (None, True, False))
    if precision in _precision_report.LEVELS and numerics != "Lossy":
        raise ValueError(
            f'{_WHAT}precision is {precision!r}, which loses precision: add numerics="lossy", or'
            " remove it"
        )
    of_job = told(contract.NUMERICS)
    if of_job in NUMERICS:
        numerics = min(numerics, of_job, key=NUMERICS.index)
    return Settings(numerics, precision, fused, prefetch_next_epoch)


def _word(name: str, value: Any, known: tuple[str, ...]) -> str:
    """One of the words of spec.acceleration, in upper or lower case."""
    found = {word.lower(): word for word in known}
    if isinstance(value, str) and value.lower() in found:
        return found[value.lower()]
    raise ValueError(f"{_WHAT}{name} is {value!r}: it must be one of {', '.join(map(repr, found))}")


def _flag(name: str, value: Any, known: tuple[bool | None, ...]) -> None:
    if not any(value is one for one in known):
        allowed = " or ".join(map(repr, known))
        raise ValueError(f"{_WHAT}{name} is {value!r}: it must be {allowed}")


def accelerate(model: Any, optimizer: Any, loader: Any, wanted: Settings) -> Any:
    optimizers, loaders = _each(optimizer), _each(loader)
    _check("model", [] if model is None else [model], torch.nn.Module, "a torch.nn.Module")
    _check(
        "optimizer", optimizers, torch.optim.Optimizer, "a torch.optim.Optimizer, or a list of them"
    )
    _check("loader", loaders, DataLoader, "a torch.utils.data.DataLoader, or a list of them")
    if not disabled():
        if model is not None:
            _use_operators(wanted)
        before, optimizers = optimizers, _with_precision(model, optimizers, wanted)
        if optimizers is not before:  # one, in the place of one
            optimizer = (
                type(optimizer)(optimizers)
                if isinstance(optimizer, (list, tuple))
                else optimizers[0]
            )
        for one in optimizers:
            _accelerate_optimizer(one, wanted)
        for one in loaders:
            _accelerate_loader(one, prefetch_next_epoch=wanted.prefetch_next_epoch)
    given = tuple(value for value in (model, optimizer, loader) if value is not None)
    return given[0] if len(given) == 1 else given


def _with_precision(model: Any, optimizers: list[Any], wanted: Settings) -> list[Any]:
    """Returns the optimizers; O2 replaces its one by another. A precision that cannot be had is an
    error if the program asks for it, and a line if the job does.
    """
    level = wanted.precision
    if level == "Disabled":
        return optimizers
    why = _precision_report.why_not_allowed()
    if level is not None and why:
        say(f"{_WHAT}precision {level} is left out: {why}")
        return optimizers
    of_job = level is None
    level = _precision.asked() if of_job else level
    try:
        if level == "TF32":
            _precision_report.switch = _precision.use_tf32()
        elif level and not (_precision.everywhere and level == "O1"):
            return _decorated(model, optimizers, level)
    except (TypeError, ValueError) as error:
        if not of_job:
            raise
        _precision_report.switch = f"off ({contract.PRECISION} is {level}: {error})"
        say(f"models compute as they are written: {error}")
    return optimizers


def _decorated(model: Any, optimizers: list[Any], level: str) -> list[Any]:
    if model is None or (level == "O2" and len(optimizers) != 1):
        raise ValueError(
            f"{_WHAT}{level} is given"
            f" {'no model' if model is None else f'{len(optimizers)} optimizers'}: give a"
            f" model{' and one optimizer' if level == 'O2' else ''}, or call paceline.amp.decorate"
            " for each model"
        )
    if level == "O1":
        amp.decorate(model, level="O1")
        return optimizers
    return [amp.decorate(model, optimizers[0], level="O2")[1]]


def _use_operators(wanted: Settings) -> None:
    """Classes of libraries are patched for all models of the process. So a model that must be the
    same to the bit keeps the originals for all.
    """
    from paceline._inject import operators, pytorch

    try:
        if wanted.numerics == "Bitwise":
            operators.decide(
                "off (numerics is Bitwise, and fused operators are of class Reordered)"
            )
        elif not told(contract.OPERATORS):
            operators.decide("")
        pytorch.install_operators()
    except Exception as error:  # fail open: the libraries compute as before
        say(f"models compute by their own operations: {type(error).__name__}: {error}")


def _each(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check(what: str, values: list[Any], kind: type, described: str) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{_WHAT}{what} is {type(value).__qualname__}: it must be {described}")


def _accelerate_optimizer(optimizer: Any, wanted: Settings) -> None:
    if not wanted.fused:
        return
    if wanted.numerics == "Bitwise":
        _optimizer_report.outcome_of(
            optimizer
        ).never = "numerics is Bitwise, and fused optimizers are of class Reordered"
        return
    try:
        _optimizers.accelerate(optimizer)
    except Exception as error:  # fail open: it is PyTorch's as before
        _optimizer_report.outcome_of(optimizer).never = f"{type(error).__name__}: {error}"
        say(f"an optimizer is left as it is: {type(error).__name__}: {error}")
