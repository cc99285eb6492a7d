# SPDX-License-Identifier: Apache-2.0
"""Which settings NCCL got and how it reaches other hosts, for paceline.explain().

The launcher has made the settings, and says so in PACELINE_NETWORK. What depends on NCCL's version
is done here, since the launcher cannot know it.
"""

from __future__ import annotations

import json
import os
import sys

from paceline._core import contract, reports
from paceline._core.environment import told
from paceline._core.log import say_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GID_INDEX = "NCCL_IB_GID_INDEX"
# The first release that looks for a RoCE v2 address by itself.
FINDS_ADDRESSES = (2, 21)
# The README of NVIDIA's resiliency extension (NVRx) says to avoid these.
FAULTY = ((2, 28, 3), (2, 28, 8))
REPAIRED = "2.28.9"

_document: dict[str, Any] = {}
_version: tuple[int, ...] = ()


def install() -> None:
    """Called when PyTorch has been imported, before NCCL reads its settings."""
    global _document, _version
    _document = json.loads(told(contract.NETWORK))
    _version = _nccl_version()
    index = _document.get("old_gid_index")
    if index is not None and () < _version < FINDS_ADDRESSES and GID_INDEX not in os.environ:
        os.environ[GID_INDEX] = str(index)
        reason = f"NCCL {_dotted(_version)} does not look for a RoCE v2 address by itself"
        setting = {"name": GID_INDEX, "value": str(index), "reason": reason}
        _document["settings"] = [*_document["settings"], setting]
    reports.register(reports.NETWORK, _status)
    if _fault() and os.environ.get("RANK") == "0" and not _is_a_child():
        say_once(_fault())


def _nccl_version() -> tuple[int, ...]:
    """Empty if PyTorch was built without NCCL."""
    try:
        version = sys.modules["torch"].cuda.nccl.version()
        return tuple(int(number) for number in version[:3])
    except Exception:
        return ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _fault() -> str:
    if not FAULTY[0] <= _version <= FAULTY[1]:
        return ""
    cuda = str(getattr(sys.modules["torch"].version, "cuda", None) or "12").partition(".")[0]
    return (
        f"NVIDIA's resiliency extension avoids NCCL {_dotted(FAULTY[0])} to {_dotted(FAULTY[1])},"
        f" and this is {_dotted(_version)}: pip install 'nvidia-nccl-cu{cuda}>={REPAIRED}'"
    )


def _is_a_child() -> bool:
    """Whether this is a worker of a loader or the like."""
    import multiprocessing

    return multiprocessing.parent_process() is not None


def _status() -> reports.Status:
    seen = [_told(setting) for setting in _document["settings"]]
    if _fault():
        name = f"NCCL {_dotted(_version)}"
        seen.append({"name": name, "state": "off", "reason": _fault(), "text": _fault()})
    acts = any(entry["state"] == "on" for entry in seen)
    where = _document["transport"] or "one host"
    return reports.Status(f"{'on' if acts else 'off'} ({where})", seen)


def _told(setting: dict[str, str]) -> dict[str, Any]:
    """One setting, and whether it is still what the launcher or this file has made it."""
    name, value, reason = setting["name"], setting["value"], setting["reason"]
    found = os.environ.get(name)
    if found == value:
        return {**setting, "state": "on", "text": f"{value} ({reason})"}
    why = f"the job sets {found}" if found is not None else "the program has removed it"
    return {**setting, "state": "off", "reason": why, "text": f"left alone ({why})"}
