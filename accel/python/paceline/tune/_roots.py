# SPDX-License-Identifier: Apache-2.0
"""Which modules a program trains: those that it calls itself, with gradients, in training mode.

Hooks of all modules watch a few steps, and are removed then. While they are set, modules take
PyTorch's longer way of calls, so they are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules import module as torch_module


class Roots:
    """Watches from `begin` to `end`."""

    def __init__(self) -> None:
        self._found: list[torch.nn.Module] = []
        self._known: set[int] = set()
        self._hooks: list[Any] = []
        self._without_gradients: set[int] = set()
        self.differentiates_twice = False

    def begin(self) -> None:
        self._hooks = [
            torch_module.register_module_forward_pre_hook(self._called),
            torch_module.register_module_forward_hook(self._returned),
        ]

    def end(self) -> list[torch.nn.Module]:
        """Returns the modules, without those that are part of another."""
        while self._hooks:
            self._hooks.pop().remove()
        found = self._found
        inside = {id(part) for root in found for part in root.modules() if part is not root}
        return [root for root in found if id(root) not in inside]

    def runs_without_gradients(self, module: torch.nn.Module) -> bool:
        """Whether it has been called in training mode with gradients off."""
        return id(module) in self._without_gradients

    def _called(self, module: Any, _: Any) -> None:
        if module.training and not torch.is_grad_enabled():
            self._without_gradients.add(id(module))
        if id(module) in self._known or not (module.training and torch.is_grad_enabled()):
            return
        self._known.update(id(part) for part in module.modules())
        if any(parameter.requires_grad for parameter in module.parameters()):
            self._found.append(module)

    def _returned(self, module: Any, _: Any, output: Any) -> None:
        if any(module is root for root in self._found):
            for tensor in tensors_in(output):
                if tensor.requires_grad and torch.is_grad_enabled():
                    tensor.register_hook(self._differentiated)

    def _differentiated(self, _: Any) -> None:
        # Backward with create_graph=True computes with gradients on.
        self.differentiates_twice = self.differentiates_twice or torch.is_grad_enabled()


def tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """The tensors in the result of a module."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > 0 and isinstance(value, (Mapping, tuple, list)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part, depth - 1)
