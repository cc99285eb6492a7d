# SPDX-License-Identifier: Apache-2.0
"""Window attention in plain PyTorch in the place of the GPU's, for tests of what is patched."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
from paceline._core import reports  # noqa: E402 - where the package lies is known only now
from paceline._inject import operators, swin  # noqa: E402

Tensor = torch.Tensor
torch.set_num_threads(1)  # tensors are small here, and waiting threads of torch's spin


class Operator:
    """Counts its calls. `allowed` is the answer of `takes`."""

    def __init__(self) -> None:
        self.calls = 0
        self.masks = 0  # calls with a mask
        self.asked = 0
        self.allowed = True
        self.error: Exception | None = None
        self._asked_of: set[Any] = set()

    def takes(self, qkv: Any, table: Tensor, index: Tensor, mask: Tensor | None) -> bool:
        self.asked += 1
        self._asked_of.add(_shape(qkv))
        return self.allowed

    def window_attention(
        self,
        qkv: Any,
        table: Tensor,
        index: Tensor,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
    ) -> Tensor:
        if self.error is not None:
            raise self.error
        assert _shape(qkv) in self._asked_of, "what comes is like what was asked for"
        self.calls += 1
        self.masks += mask is not None
        parts = qkv if isinstance(qkv, tuple) else qkv.unbind(2)
        q, k, v = (each.transpose(1, 2) for each in parts)
        windows, heads, size, head_dim = q.shape
        scores = q @ k.transpose(-2, -1) * (head_dim**-0.5 if scale is None else scale)
        scores = scores + table[index.reshape(-1)].view(size, size, heads).permute(2, 0, 1)
        if mask is not None:
            scores = scores + mask.repeat(windows // mask.shape[0], 1, 1)[:, None]
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(windows, size, -1)


def _shape(qkv: Any) -> Any:
    parts = qkv if isinstance(qkv, tuple) else (qkv,)
    return tuple((tuple(each.shape), each.dtype) for each in parts)


@contextlib.contextmanager
def installed(**variables: str) -> Iterator[Operator]:
    """Patches Swin's classes as a job with these variables does, with this operator."""
    operator = Operator()
    with pytest.MonkeyPatch.context() as patch:
        try:
            window: Any = importlib.import_module("paceline.ops._window")
        except ImportError:
            window = ModuleType("paceline.ops._window")
            patch.setitem(sys.modules, window.__name__, window)
            patch.setattr(importlib.import_module("paceline.ops"), "_window", window, raising=False)
        patch.setattr(window, "serves", lambda *_: True, raising=False)
        patch.setattr(window, "takes", operator.takes, raising=False)
        patch.setattr(window, "window_attention", operator.window_attention, raising=False)
        with job(swin.install, **variables):
            yield operator


@contextlib.contextmanager
def job(install: Callable[[], None], **variables: str) -> Iterator[None]:
    """Patches what a job with these variables patches by this function."""
    registered = dict(reports._reports)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PACELINE_OPERATORS": "Auto", **variables}.items():
            patch.setenv(name, value)
        try:
            install()
            yield
        finally:
            operators.uninstall()
            reports._reports.clear()
            reports._reports.update(registered)
