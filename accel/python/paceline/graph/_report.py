# SPDX-License-Identifier: Apache-2.0
"""Which steps have been captured in this process, for paceline.explain()."""

from __future__ import annotations

from paceline._core import contract, reports
from paceline._core.environment import setting

LIMIT = 8  # steps that explain() tells of
_captured: list[str] = []
_refusal: list[str] = []  # why the last step that was refused was


class Refused(RuntimeError):
    """This step cannot be captured or replayed, and nothing of it has happened. The text says what
    is in the way, and what to do.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        _refusal[:] = [why]


def captured(name: str) -> None:
    _captured.append(name)
    del _captured[:-LIMIT]


def why_off() -> str:
    """Returns an empty text if steps are captured, else why the job has them made as always."""
    said = setting(contract.CUDA_GRAPH)
    if said == "Auto":
        return ""
    neither = "" if said == "Disabled" else ", neither Auto nor Disabled"
    return f"{contract.CUDA_GRAPH} is {said}{neither}"


def _status() -> reports.Status:
    if _captured:
        return reports.Status(f"on ({', '.join(_captured)})", [])
    refused = f"the last step was refused: {_refusal[0]}" if _refusal else ""
    return reports.Status(f"off ({why_off() or refused or 'no step has been captured yet'})", [])


reports.register(reports.GRAPHS, _status)
