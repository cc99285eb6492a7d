# SPDX-License-Identifier: Apache-2.0
"""The facts that a captured step depends on: the form of its inputs, where parameters lie, modes,
and the numbers of optimizers. Each fact has a name, a value, and the remedy if the value changes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch

Tensor = torch.Tensor
# Called by map() over all of a model, before each replay.
_training, _requires_grad = operator.attrgetter("training"), operator.attrgetter("requires_grad")
_params = operator.itemgetter("params")
_PAD = "pad batches to one shape (and drop_last=True), or capture a step for each"
_NUMBER = (
    "a captured step repeats the value that it saw: pass a tensor on the device, or call"
    " recapture()"
)


class Inputs:
    """The arguments of a step: tensors by name, and all other values by name."""

    def __init__(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.others: dict[str, Any] = {}
        for number, value in enumerate(args):
            self._take(f"input {number}", value)
        for name, value in options.items():
            self._take(f"input {name}", value)

    def _take(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self.tensors[name] = value
        elif isinstance(value, Mapping):
            self.others[name] = (type(value), tuple(value))
            for key, each in value.items():
                self._take(f"{name}[{key!r}]", each)
        elif isinstance(value, (list, tuple)):
            self.others[name] = (type(value), len(value))
            for number, each in enumerate(value):
                self._take(f"{name}[{number}]", each)
        else:
            self.others[name] = value

    def facts(self) -> Iterator[tuple[str, Any, str]]:
        for name, value in self.others.items():
            yield name, value, _NUMBER
        for name, tensor in self.tensors.items():
            form = (
                tuple(tensor.shape),
                tensor.dtype,
                tensor.device,
                tensor.stride(),
                tensor.requires_grad,
            )
            yield name, form, _PAD


def with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Returns the arguments with other tensors in the same places."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        made = {key: with_tensors(each, tensors) for key, each in value.items()}
        if type(value) is dict:
            return made
        copied = value.copy() if hasattr(value, "copy") else dict(value)
        for key, each in made.items():
            copied[key] = each
        return copied
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(with_tensors(each, tensors) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(with_tensors(each, tensors) for each in value)
    return value


def of_model(model: Any) -> Iterator[tuple[str, Any, str]]:
    if model is None:
        return
    again = "call recapture()"
    yield (
        "the model's training flags",
        tuple(module.training for module in model.modules()),
        f"call train() or eval() back, or {again}; an evaluation runs outside of the captured step",
    )
    for name, parameter in model.named_parameters():
        yield (
            f"parameter {name}",
            (id(parameter), parameter.data_ptr(), parameter.dtype, parameter.requires_grad),
            f"write into it in place (load_state_dict does), or {again}",
        )
    for name, buffer in model.named_buffers():
        yield (
            f"buffer {name}",
            (id(buffer), buffer.data_ptr(), buffer.dtype),
            f"write into it in place, or {again}",
        )


def of_optimizers(optimizers: list[Any]) -> Iterator[tuple[str, Any, str]]:
    for which, optimizer in enumerate(optimizers):
        kind = type(optimizer).__name__ + (f" {which}" if which else "")
        for number, group in enumerate(optimizer.param_groups):
            places = tuple((id(parameter), parameter.data_ptr()) for parameter in group["params"])
            yield (
                f"{kind}'s group {number}",
                places,
                "its parameters are others now: call recapture()",
            )
            for key, value in group.items():
                if key == "params":
                    continue
                name = f"{key} of {kind}'s group {number}"
                if isinstance(value, Tensor):
                    yield (
                        name,
                        ("the tensor at", value.data_ptr()),
                        "write into the tensor in place (fill_), or call recapture()",
                    )
                else:
                    remedy = "call recapture()"
                    if key == "lr":
                        remedy = (
                            "give a tensor on the device (lr=torch.tensor(…, device=…)), which"
                            " schedules write into, or call recapture()"
                        )
                    yield name, value, f"a captured step repeats the number that it saw: {remedy}"


class Quick:
    """Compares a model and optimizers with what they were, in about 0.15 ms for 160 parameters.
    Only if something differs, the slower functions below look for it.
    """

    def __init__(self, model: Any, optimizers: list[Any]) -> None:
        self._modules = [] if model is None else list(model.modules())
        # One that was empty held nothing that the step could have captured.
        self._held = [
            held
            for module in self._modules
            for held in (module._parameters, module._buffers, module._modules)
            if held
        ]
        self._tensors = [
            each for held in self._held for each in held.values() if isinstance(each, Tensor)
        ]
        self._parameters = [each for each in self._tensors if isinstance(each, torch.nn.Parameter)]
        self._optimizers = optimizers
        self._before = self._now()

    def _now(self) -> list[Any]:
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        numbers = chain.from_iterable(map(dict.values, groups))
        return [
            [*map(_training, self._modules)],
            [*map(id, chain.from_iterable(map(dict.values, self._held)))],
            [*map(Tensor.data_ptr, self._tensors)],
            [*map(_requires_grad, self._parameters)],
            [*map(id, chain.from_iterable(map(_params, groups)))],
            [
                value if isinstance(value, (float, int, str, tuple)) else id(value)
                for value in numbers
            ],
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
        ]

    def same(self) -> bool:
        return self._before == self._now()


def of_torch() -> Iterator[tuple[str, Any, str]]:
    back = "set it back, or call recapture()"
    yield "torch.is_grad_enabled()", torch.is_grad_enabled(), back
    yield (
        "torch.are_deterministic_algorithms_enabled()",
        torch.are_deterministic_algorithms_enabled(),
        back,
    )


def first_change(before: list[tuple[str, Any, str]], now: list[tuple[str, Any, str]]) -> str:
    """Returns what has changed first and its remedy, or an empty text."""
    for (name, old, remedy), (other, new, _) in zip(before, now):
        if name != other:
            return f"there is {other} in the place of {name}: call recapture()"
        if not _same(old, new):
            return f"{name} was {_shown(old)} and is {_shown(new)}: {remedy}"
    if len(before) != len(now):
        longer = max(before, now, key=len)
        had = "gone" if longer is before else "new"
        return f"{longer[min(len(before), len(now))][0]} is {had}: call recapture()"
    return ""


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    try:
        return type(old) is type(new) and bool(old == new)
    except Exception:  # the program's own class may raise
        return False


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 5 and isinstance(value[2], torch.device):
        shape, dtype, device, stride, grad = value
        return f"{shape} of {str(dtype)[6:]} on {device}, strides {stride}" + (
            ", requiring a gradient" if grad else ""
        )
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
