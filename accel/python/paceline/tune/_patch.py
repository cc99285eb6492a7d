# SPDX-License-Identifier: Apache-2.0
"""Turns on what the job asks to be tried: PACELINE_COMPILE=Auto."""

from __future__ import annotations

from collections.abc import Callable

from paceline._core import contract
from paceline._core.switches import why_off
from paceline.tune import _compile, _report, _signature, _tuner

_end: list[Callable[[], None]] = []


def install() -> None:
    _report.install()
    _report.switch = why_off(contract.COMPILE, "models are", "compiled models")
    if _report.switch:
        return
    why = _compile.why_never()
    if why:
        _report.switch = f"off ({why})"
        return
    _report.switch = "on"
    tuner = _tuner.Tuner(
        _compile.Compile(),
        first_budget=_compile.CAP,
        after=_tuner.after(),
        memory=_signature.of_job(_compile.NAME),
        turns=_tuner.TURNS,
    )
    _end.append(_tuner.drive(tuner))


def uninstall() -> None:
    """Tries nothing from now on."""
    while _end:
        _end.pop()()
    _report.switch = "off (uninstalled)"
