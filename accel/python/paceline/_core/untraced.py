# SPDX-License-Identifier: Apache-2.0
"""Calls that torch.compile must not trace into: they hand addresses of tensors to the library, and
a trace has none. A compiled function that makes such a call is compiled before and behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Call = TypeVar("Call", bound="Callable[..., Any]")


def _as_it_is(call: Call) -> Call:
    return call


# PyTorch's own, of its optimizers' methods: it imports the compiler with the first call, as making
# an optimizer does. Since 2.1.
untraced: Callable[[Call], Call] = getattr(torch, "_disable_dynamo", _as_it_is)
