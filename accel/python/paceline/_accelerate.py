# SPDX-License-Identifier: Apache-2.0
"""paceline.accelerate: in one line what a job's spec.acceleration does to a program that knows
nothing of it. What cannot be sped up is left as it is, and paceline.explain() says why. Errors are
the caller's alone: an unknown key or value, or something that is no model, optimizer or loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from paceline import amp
from paceline._core import contract, explain
from paceline._core.environment import disabled, told
from paceline._core.log import say
from paceline._core.switches import NUMERICS
from paceline.amp import _patch as _precision
from paceline.amp import _report as _precision_report
from paceline.loader import accelerate as _accelerate_loader
from paceline.optim import _patch as _optimizers
from paceline.optim import _report as _optimizer_report

# As in spec.acceleration; the first value of each is the default. `ahead` is of the program alone:
# only it can know.
KEYS: dict[str, tuple[Any, ...]] = {
    "loader": ("Auto", "Disabled"),
    "optimizer": ("Auto", "Disabled"),
    "numerics": ("Reordered", "Bitwise", "Lossy"),
    "ahead": (None, True, False),
    "precision": (None, "Disabled", "TF32", "O1", "O2"),  # None: as the job says
}


def read(config: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {key: values[0] for key, values in KEYS.items()}
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(
            f"paceline.accelerate: config is {type(config).__qualname__}: it must be a dict with"
            f" {', '.join(KEYS)}"
        )
    for key, value in (config or {}).items():
        if key not in KEYS:
            raise ValueError(
                f"paceline.accelerate: config has {key!r}, which is none of {', '.join(KEYS)}"
            )
        if not any(
            value is known or (isinstance(known, str) and value == known) for known in KEYS[key]
        ):
            allowed = ", ".join(repr(known) for known in KEYS[key])
            raise ValueError(
                f"paceline.accelerate: config[{key!r}] is {value!r}: it must be one of {allowed}"
            )
        found[key] = value
    if found["precision"] in _precision_report.LEVELS and found["numerics"] != "Lossy":
        raise ValueError(
            f"paceline.accelerate: config['precision'] is {found['precision']!r}, which loses"
            " precision: write 'numerics': 'Lossy' beside it, or remove it"
        )
    # A job's own class bounds what its program may ask for.
    of_job = told(contract.NUMERICS)
    if of_job in NUMERICS:
        found["numerics"] = min(found["numerics"], of_job, key=NUMERICS.index)
    return found


def accelerate(model: Any, optimizer: Any, loader: Any, config: Mapping[str, Any] | None) -> Any:
    wanted = read(config)
    optimizers, loaders = _each(optimizer), _each(loader)
    _check("model", [] if model is None else [model], torch.nn.Module, "a torch.nn.Module")
    _check(
        "optimizer", optimizers, torch.optim.Optimizer, "a torch.optim.Optimizer, or a list of them"
    )
    _check("loader", loaders, DataLoader, "a torch.utils.data.DataLoader, or a list of them")
    if not disabled():
        if model is not None:
            explain.model_given = f"{type(model).__module__}.{type(model).__qualname__}"
        before, optimizers = optimizers, _with_precision(model, optimizers, wanted)
        if optimizers is not before:  # one, in the place of one
            optimizer = (
                type(optimizer)(optimizers)
                if isinstance(optimizer, (list, tuple))
                else optimizers[0]
            )
        for one in optimizers:
            _accelerate_optimizer(one, wanted)
        if wanted["loader"] == "Auto":
            for one in loaders:
                _accelerate_loader(one, ahead=wanted["ahead"])
    given = tuple(value for value in (model, optimizer, loader) if value is not None)
    return given[0] if len(given) == 1 else given


def _with_precision(model: Any, optimizers: list[Any], wanted: dict[str, Any]) -> list[Any]:
    """The optimizers, of which O2 puts another in the place of one. What the program has asked for
    wrongly is its error; what the job has is left, with a line.
    """
    level = wanted["precision"]
    if level == "Disabled":
        return optimizers
    why = _precision_report.why_not_allowed()
    if level is not None and why:
        say(f"paceline.accelerate: precision {level} is left out: {why}")
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
            f"paceline.accelerate: {level} is given"
            f" {'no model' if model is None else f'{len(optimizers)} optimizers'}: give a"
            f" model{' and one optimizer' if level == 'O2' else ''}, or call paceline.amp.decorate"
            " for each model"
        )
    if level == "O1":
        amp.decorate(model, level="O1")
        return optimizers
    return [amp.decorate(model, optimizers[0], level="O2")[1]]


def _each(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check(what: str, values: list[Any], kind: type, described: str) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(
                f"paceline.accelerate: {what} is {type(value).__qualname__}: it must be {described}"
            )


def _accelerate_optimizer(optimizer: Any, wanted: dict[str, Any]) -> None:
    if wanted["optimizer"] == "Disabled":
        return
    if wanted["numerics"] == "Bitwise":
        _optimizer_report.outcome_of(
            optimizer
        ).never = "numerics is Bitwise, and fused optimizers are of class Reordered"
        return
    try:
        _optimizers.accelerate(optimizer)
    except Exception as error:  # fail open: it is PyTorch's as before
        _optimizer_report.outcome_of(optimizer).never = f"{type(error).__name__}: {error}"
        say(f"an optimizer is left as it is: {type(error).__name__}: {error}")
