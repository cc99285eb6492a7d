# SPDX-License-Identifier: Apache-2.0
"""Casts the tensors within a model's arguments and answers."""

from __future__ import annotations

from typing import Any

import torch


def cast(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    """Casts every tensor of dtype `old` in `value` to `new`; containers keep their type."""
    if isinstance(value, torch.Tensor):
        return value.to(new) if value.dtype is old else value
    if isinstance(value, dict):
        changed = {key: cast(part, old, new) for key, part in value.items()}
        if type(value) is dict:
            return changed
        for key, part in changed.items():
            value[key] = part
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(part, old, new) for part in value))
    if type(value) in (list, tuple):
        return type(value)(cast(part, old, new) for part in value)
    return value
