# SPDX-License-Identifier: Apache-2.0
"""Calls that torch.compile must not trace into: they hand addresses of tensors to the library, and
a trace has none. A compiled function that makes such a call is compiled before and behind it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Call = TypeVar("Call", bound="Callable[..., Any]")

# PyTorch's own, of its optimizers' methods, since 2.1.
_outside_graphs = getattr(torch, "_disable_dynamo", None)


def untraced(call: Call) -> Call:
    if _outside_graphs is None:
        return call
    outside_graphs: Callable[..., Any] = _outside_graphs(call)

    # Its first call imports the compiler. Programs without the compiler have no graphs.
    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return outside_graphs(*args, **kwargs)
        return call(*args, **kwargs)

    return cast(Call, called)
