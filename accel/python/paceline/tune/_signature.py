# SPDX-License-Identifier: Apache-2.0
"""What makes two trainings alike, so that a later one begins with what an earlier one has shown."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from paceline._core import contract, machine, records
from paceline._core.environment import setting, told
from paceline._core.log import say_once
from paceline._core.trace import trace
from paceline.tune._learned import Learned, entry_of
from paceline.tune._roots import Roots
from paceline.tune._trial import Verdict

# Settings of the job that change what a step does.
_SETTINGS = (
    contract.NUMERICS,
    contract.PRECISION,
    contract.OPTIMIZER,
    contract.COMMUNICATION,
    contract.COMMUNICATION_COMPRESSION,
)


class Memory:
    """What is known of one change in the training of this process. Nothing here raises."""

    def __init__(self, learned: Learned, change: str) -> None:
        self._learned, self._change = learned, change
        self._roots = Roots()
        self._signature: dict[str, Any] | None = None

    def has_any(self) -> bool:
        """Whether anything is known of any training: if not, nothing is looked at before a trial,
        since a model that the program compiles would be compiled anew for it."""
        return self._learned.has_any()

    def observe(self) -> None:
        """Begins to look at what is trained. `find` ends that."""
        self._roots.begin()

    def find(self, ranks: int) -> dict[str, Any] | None:
        """What an earlier run has shown; None if nothing."""
        roots, self._roots = self._roots, Roots()  # which keeps no module alive
        try:
            self._signature = signature(roots.end(), ranks)
        except Exception as error:  # a module may do anything
            say_once(f"nothing is learned of this training: {type(error).__name__}: {error}")
        if self._signature is None:
            return None
        return self._learned.find(self._signature, self._change)

    def use(self, entry: dict[str, Any]) -> None:
        """Notes that a run begins with it: until it has been looked at again, an attempt after a
        failure leaves it alone."""
        if self._signature is not None:
            self._learned.keep(self._signature, self._change, {**entry, "checked": False})

    def note(self, verdict: Verdict) -> None:
        if self._signature is not None:
            self._learned.keep(self._signature, self._change, entry_of(verdict))


def of_job(change: str) -> Memory | None:
    """The memory that the job names; None without one."""
    folder = told(contract.LEARNED_DIR)
    return Memory(Learned(Path(folder)), change) if folder else None


def signature(roots: list[Any], ranks: int) -> dict[str, Any] | None:
    """None of a program that trains no module."""
    shapes = hashlib.sha256()
    device = None
    for root in roots:
        for part in root.modules():
            shapes.update(f"{type(part).__module__}.{type(part).__qualname__};".encode())
        for name, value in root.named_parameters():
            device = device or value.device
            shapes.update(
                f"{name} {tuple(value.shape)} {value.dtype} {value.requires_grad};".encode()
            )
    if device is None:
        return None
    return {
        "model": ", ".join(type(root).__qualname__ for root in roots)[:200],
        "shapes": shapes.hexdigest(),
        "batch": records.batch(trace.steps()),
        "ranks": ranks,
        "device": _device(device),
        "threads": torch.get_num_threads(),
        "pytorch": str(torch.__version__),
        "paceline": metadata.version("paceline"),
        **{name: setting(name) for name in _SETTINGS},
    }


def _device(device: Any) -> str:
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    if device.type != "cpu":
        return str(device.type)
    return f"cpu: {_processor()}, {machine.seen().processors:.3g} of them"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return value.strip()
    except (OSError, ValueError):
        pass
    return "unknown"
