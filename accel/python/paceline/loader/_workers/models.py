# SPDX-License-Identifier: Apache-2.0
"""Models that a dataset or collate function holds, such as one whose tokenizer it uses. A fork
shares the weights with the training process, and copies none. But a worker does not see how
training changes them. So a model is no hazard if it lies on the CPU, and if the making of the first
batch reads none of its tensors.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

# What tells nothing of a tensor's values.
_FACTS = frozenset(
    getattr(torch.Tensor, name).__get__
    for name in ("device", "dtype", "shape", "layout", "ndim", "requires_grad", "is_cuda")
) | {torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.is_floating_point}
_Mode: Any = getattr(torch.overrides, "TorchFunctionMode", object)


def why_never(model: torch.nn.Module) -> str:
    """Returns why this model must not be held by a worker, or an empty text."""
    tensors = [*tensors_of(model)]
    kind = next((each.device.type for each in tensors if each.device.type != "cpu"), "")
    if kind:
        return f"a model on {kind}, which a fork breaks"
    if tensors and any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        return "a model in TorchScript, whose reads of weights cannot be seen"
    if tensors and _Mode is object:
        return f"a model, whose reads of weights PyTorch {torch.__version__} does not show"
    return ""


def tensors_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    return itertools.chain(model.parameters(), model.buffers())


class Reads(_Mode):
    """While it is entered: notes whether this thread reads one of these models' tensors."""

    def __init__(self, models: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self._models = [*models]
        # Held, so that no other tensor gets the id of one of them.
        self._tensors = {id(each): each for model in self._models for each in tensors_of(model)}
        self.found = ""

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function not in _FACTS and not self.found:
            given = itertools.chain(args, kwargs.values())
            if any(id(each) in self._tensors for each in _flat(given)):
                self.found = getattr(function, "__name__", "an operation")
        return function(*args, **kwargs)

    def watching(self) -> Any:
        return self if self._tensors else contextlib.nullcontext()


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value
