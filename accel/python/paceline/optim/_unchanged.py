# SPDX-License-Identifier: Apache-2.0
"""Whether tensors are still those that a table was made of, asked before every step. Of a model of many small tensors this is most of what a
step costs its host, so each question is asked of all tensors in one call. In doubt the answer is no, which costs a slower look."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from paceline.optim import _native, _sharded
from paceline.optim._bulk import Seen, identities, layout_of

Tensor = torch.Tensor

_dtype_of, _device_of = operator.attrgetter("dtype"), operator.attrgetter("device")


_PLAIN = {Tensor, torch.nn.Parameter}


def _values_of(state: Mapping[Any, Any]) -> Iterator[Any]:
    # Beside the dicts of parameters a program may keep things of its own there.
    return itertools.chain.from_iterable([held.values() for held in state.values() if isinstance(held, dict)])


def _known_at_once(state: Mapping[Any, Any]) -> list[Any]:
    """The same where the state holds dicts alone, whose values the garbage collector knows all at once."""
    return gc.get_referents(*state.values())


def _layout_or_id(value: Any) -> object:
    try:
        return layout_of(_sharded.local(value)) if isinstance(value, Tensor) else id(value)
    except RuntimeError:  # a tensor that has no place
        return id(value)


def _are_strided(tensors: Iterable[Tensor]) -> bool:
    return all(one.layout is torch.strided and not one.is_nested for one in tensors)


class Values:
    """The values of an optimizer's state: which they are, and where those lie that are tensors, whose memory a program may exchange under them.
    Holds neither them nor the dicts that they are in: where a program takes its state elsewhere, the memory is free at once. Of what has no place (a
    sparse tensor that a program keeps there), which it is."""

    def __init__(self, state: Mapping[Any, Any]) -> None:
        self._values_of = _known_at_once if all(type(held) is dict for held in state.values()) else _values_of
        values = [*self._values_of(state)]
        self._count = len(values)
        self._are_tensors = [isinstance(value, Tensor) for value in values]
        self._are_others = [not is_one for is_one in self._are_tensors] if not all(self._are_tensors) else []
        tensors = [*itertools.compress(values, self._are_tensors)]
        self._plain = _PLAIN.issuperset(map(type, tensors)) and _are_strided(tensors)
        self._told = self._of_others(state, values)
        self._tensors = Seen(self._of_tensors(values))

    def same(self, state: Mapping[Any, Any]) -> bool:
        """Whether the state has the same values for the same keys, which the caller keeps alive. What has taken the id of one that died is as good
        where it is a tensor that lies in the same place."""
        values = [*self._values_of(state)]
        try:
            return (
                len(values) == self._count
                and self._of_others(state, values) == self._told
                and self._tensors.same(self._of_tensors(values))
            )
        except RuntimeError:  # a tensor that has no place
            return False

    def _of_tensors(self, values: list[Any]) -> tuple[Any, ...]:
        """Those that can be looked at in one call."""
        if not self._plain:
            return ()
        return tuple(itertools.compress(values, self._are_tensors) if self._are_others else values)

    def _of_others(self, state: Mapping[Any, Any], values: list[Any]) -> object:
        if not self._plain:
            return [*map(id, state)], [*map(_layout_or_id, values)]
        return identities((*state, *itertools.compress(values, self._are_others)))


class Gradients:
    """What gradients were like: they are other tensors in every step. Their parameters lie as they did, which the caller has asked."""

    def __init__(self, grads: list[Tensor], parameters: list[Tensor]) -> None:
        self._dtypes, self._devices = [*map(_dtype_of, grads)], [*map(_device_of, grads)]
        self._sizes = [*map(Tensor.size, parameters)]
        self._contiguous = all(map(Tensor.is_contiguous, parameters))
        alike = all(map(_native.alike, parameters, grads))
        self._guard = _guard_of(grads) if alike else None

    def same(self, grads: list[Any]) -> bool:
        """Whether each is there, a plain tensor of its dtype, and lies as its parameter does."""
        return (self._guard is not None and _passes(self._guard, grads)) or self._are_contiguous(grads)

    def laid_out(self, grads: list[Any], parameters: list[Tensor]) -> list[Tensor | None] | None:
        """Copies of those that lie otherwise, None staying None; None for all where one is of another kind than it was."""
        found: list[Tensor | None] = []
        for parameter, grad, dtype in zip(parameters, grads, self._dtypes):
            if grad is not None:
                if type(grad) not in _PLAIN or grad.dtype is not dtype or grad.layout is not torch.strided:
                    return None
                if grad.shape != parameter.shape or grad.device != parameter.device:
                    return None
                if not (grad.is_contiguous() and parameter.is_contiguous()) or grad.is_neg():
                    with torch.no_grad():
                        grad = _native.laid_out_as(parameter.detach(), grad)
            found.append(grad)
        return found

    def _are_contiguous(self, grads: list[Any]) -> bool:
        try:
            return (
                self._contiguous
                and _PLAIN.issuperset(map(type, grads))
                and [*map(_dtype_of, grads)] == self._dtypes
                and [*map(_device_of, grads)] == self._devices
                and [*map(Tensor.size, grads)] == self._sizes
                and all(map(Tensor.is_contiguous, grads))
                and not any(map(Tensor.is_neg, grads))
            )
        except RuntimeError:  # a sparse one has no such thing
            return False


def _passes(guard: Any, tensors: list[Any]) -> bool:
    try:
        return bool(guard.check(*tensors))
    except Exception:
        return False


def _made(examples: list[Tensor]) -> Any:
    from torch._C._dynamo.guards import TensorGuards  # what torch.compile asks before it runs compiled code

    sizes, strides = [[*one.size()] for one in examples], [[*one.stride()] for one in examples]
    return TensorGuards(*examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)


@functools.cache
def _guards_are_known() -> bool:
    """PyTorch's guards are its own affair: used where they tell apart what has to be told apart."""
    try:
        one = torch.ones(3, 2, device="cpu")
        guard = _made([one])
        others = [one.double(), one.t().contiguous().t(), one[:, :1], torch._neg_view(one), one.to_sparse(), None]
        others += [torch.nn.Parameter(one), torch.ones(3, 2, device="meta")]
        return _passes(guard, [torch.zeros(3, 2, device="cpu")]) and not any(
            _passes(guard, [other]) for other in others
        )
    except Exception:
        return False


def _guard_of(grads: list[Tensor]) -> Any:
    """None where PyTorch has none that is known."""
    try:
        return _made(grads) if _guards_are_known() else None
    except Exception:
        return None
