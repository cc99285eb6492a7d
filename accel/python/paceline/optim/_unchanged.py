# SPDX-License-Identifier: Apache-2.0
"""Whether tensors are still those that a table was made of, asked before every step. Of a model of many small tensors this is most of what a
step costs its host, so each question is asked of all tensors in one call. In doubt the answer is no, which costs a slower look."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import torch

from paceline.optim import _native, _sharded
from paceline.optim._bulk import identities

Tensor = torch.Tensor

_dtype_of, _device_of = operator.attrgetter("dtype"), operator.attrgetter("device")


@functools.cache
def _storages_are_kept() -> bool:
    """Whether the object that stands for a storage lives as long as its memory does, so that it can tell of its end (PyTorch 2)."""
    try:
        one = torch.ones(2, device="cpu")
        kept = weakref.ref(one.untyped_storage())
        return kept() is not None
    except (AttributeError, TypeError):
        return False


def _values_of(state: Mapping[Any, Any]) -> Iterator[Any]:
    # Beside the dicts of parameters a program may keep things of its own there.
    return itertools.chain.from_iterable([held.values() for held in state.values() if isinstance(held, dict)])


def _place_or_id(value: Any) -> int:
    return _sharded.local(value).data_ptr() if isinstance(value, Tensor) else id(value)


class Values:
    """The values of an optimizer's state. Holds neither them nor the dicts that they are in: where a program takes its state elsewhere, the memory
    is free at once."""

    def __init__(self, state: Mapping[Any, Any]) -> None:
        tensors = [value for value in _values_of(state) if isinstance(value, Tensor)]
        # What has an id or an address may have taken it from one that died; and a tensor's memory may be exchanged under it: then the
        # memory that it had is freed, unless it is a part of another tensor's.
        whole = _storages_are_kept() and not any(_sharded.is_one(one) or one._is_view() for one in tensors)
        self._now: Callable[[Mapping[Any, Any]], object] = _identities_of
        if not whole:
            self._now = _places_and_ids_of
        elif all(type(held) is dict for held in state.values()):
            self._now = _identities_of_dicts
        storages = [one.untyped_storage() for one in tensors] if whole else []
        self._died: list[Any] = []
        self._alive = [weakref.ref(one, self._died.append) for one in (*tensors, *storages)]
        self._told = self._now(state)

    def same(self, state: Mapping[Any, Any]) -> bool:
        """Whether the state has the same values for the same keys, which the caller keeps alive."""
        return not self._died and self._now(state) == self._told


def _identities_of(state: Mapping[Any, Any]) -> bytes:
    return identities((*state, *_values_of(state)))


def _identities_of_dicts(state: Mapping[Any, Any]) -> bytes:
    """The same where the state holds dicts alone, whose values the garbage collector knows all at once."""
    held = gc.get_referents(*state.values())
    held.extend(state)
    return identities(tuple(held))


def _places_and_ids_of(state: Mapping[Any, Any]) -> list[int]:
    return [*map(id, state), *map(_place_or_id, _values_of(state))]


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
                if type(grad) is not Tensor or grad.dtype is not dtype or grad.layout is not torch.strided:
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
                and set(map(type, grads)) == {Tensor}
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
