# SPDX-License-Identifier: Apache-2.0
"""What has become of models' precision in this process, for paceline.explain()."""

from __future__ import annotations

import collections
from typing import Any

from paceline._core import contract, reports
from paceline._core.environment import disabled, told, why_disabled

LEVELS = tuple(level for level in contract.VALUES[contract.PRECISION] if level != "Disabled")
LIMIT = 64  # classes of models that explain() tells of

switch = f"off ({contract.PRECISION} is not set)"
decorated: list[str] = []  # levels and models that the program has asked for
left: list[str] = []  # why the last request of the program was not carried out

# Class of a model, and why O1 in every module leaves it as it is; empty if it does not.
models: collections.OrderedDict[str, str] = collections.OrderedDict()


def why_not_allowed() -> str:
    """Returns an empty text if the job's numerics class allows a loss of precision, else why not.
    Without a job the program decides for itself.
    """
    numerics = told(contract.NUMERICS)
    if numerics in ("", "Lossy"):
        return ""
    return f"it is of class Lossy, and {contract.NUMERICS} is {numerics}"


def met(name: str, why: str) -> None:
    """Remembers a class of models and why it is left as it is."""
    if models.get(name) != why:
        models[name] = why
        if len(models) > LIMIT:
            models.popitem(last=False)


def seen() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "state": "off" if why else "on",
            "reason": why,
            "text": f"as it is written ({why})" if why else "under torch.autocast in bfloat16",
        }
        for name, why in models.items()
    ]


def _status() -> reports.Status:
    said = f"off ({why_disabled()})" if disabled() else switch
    if decorated:
        also = f"{said[4:-1]}, " if said.startswith("on (") else ""
        said = f"on ({also}{', '.join(decorated)})"
    elif said.startswith("off ("):
        why = left[0] if left else "the program does not call paceline.amp.decorate"
        said = f"{said[:-1]}, and {why})"
    return reports.Status(said, seen())


reports.register(reports.PRECISION, _status)
