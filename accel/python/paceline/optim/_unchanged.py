# SPDX-License-Identifier: Apache-2.0
"""Whether tensors are still those that a table was made of, asked before every step. Of a model of
many small tensors this is most of what a step costs its host, so each question is asked of all
tensors in one call. In doubt the answer is no, which costs a slower look.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from paceline.optim import _bulk, _native, _sharded
from paceline.optim._bulk import Places, Seen, SeenState
from paceline.optim._reader import Held, layout_of

Tensor = torch.Tensor

_dtype_of, _device_of = operator.attrgetter("dtype"), operator.attrgetter("device")


PLAIN = {Tensor, torch.nn.Parameter}


def _dicts_of(state: Mapping[Any, Any]) -> Iterator[dict[Any, Any]]:
    # Beside the dicts of parameters a program may keep things of its own there.
    return (held for held in state.values() if isinstance(held, dict))


def _layout_or_id(value: Any) -> object:
    try:
        return (
            (id(value), *layout_of(_sharded.local(value)))
            if isinstance(value, Tensor)
            else id(value)
        )
    except RuntimeError:  # a tensor that has no place
        return id(value)


def _are_strided(tensors: Iterable[Tensor]) -> bool:
    return all(one.layout is torch.strided and not one.is_nested for one in tensors)


class Values:
    """The values of an optimizer's state: which they are, under which names, and where those lie
    that are tensors, whose memory a program may exchange under them. Holds neither them nor the
    dicts that they are in: where a program takes its state elsewhere, the memory is free at once.
    Of what has no place (a sparse tensor that a program keeps there), which it is.
    """

    def __init__(self, state: Mapping[Any, Any]) -> None:
        values = itertools.chain.from_iterable(held.values() for held in _dicts_of(state))
        tensors = [value for value in values if isinstance(value, Tensor)]
        self._seen: SeenState | None = None
        if PLAIN.issuperset(map(type, tensors)) and _are_strided(tensors):
            try:
                self._seen = SeenState(state)
            except (TypeError, ValueError):
                pass
        self._each = None if self._seen else self._by_one(state)

    def same(self, state: Mapping[Any, Any]) -> bool:
        """Whether the state has the same values for the same keys, which the caller keeps alive.
        What has taken the id of one that died is as good where it is a tensor that lies in the same
        place.
        """
        return self._seen.same(state) if self._seen else self._by_one(state) == self._each

    @staticmethod
    def _by_one(state: Mapping[Any, Any]) -> object:
        dicts = [*_dicts_of(state)]
        return (
            [*map(id, state)],
            [[*held] for held in dicts],
            [[*map(_layout_or_id, held.values())] for held in dicts],
        )


class Gradients:
    """What gradients were like: they are other tensors in every step. Their parameters lie as they
    did, which the caller has asked.
    """

    def __init__(self, grads: list[Tensor], parameters: list[Tensor]) -> None:
        self._dtypes, self._devices = [*map(_dtype_of, grads)], [*map(_device_of, grads)]
        self._sizes = [*map(Tensor.size, parameters)]
        self._contiguous = all(map(Tensor.is_contiguous, parameters))
        alike = all(map(_native.alike, parameters, grads))
        self._seen = Seen(Held(grads)) if alike else None

    def find(self, parameters: Held, places: Places) -> bool:
        """Sets where each begins, where that can be had in one call: they are there, and lie as
        their parameters do.
        """
        return self._seen is not None and _bulk.gradients(parameters, self._seen, places)

    def laid_out(self, grads: list[Any], parameters: list[Tensor]) -> list[Tensor | None] | None:
        """Copies of those that lie otherwise, None staying None; None for all where one is of
        another kind than it was.
        """
        found: list[Tensor | None] = []
        for parameter, grad, dtype in zip(parameters, grads, self._dtypes):
            if grad is not None:
                if (
                    type(grad) not in PLAIN
                    or grad.dtype is not dtype
                    or grad.layout is not torch.strided
                ):
                    return None
                if _native.has_no_memory(grad):
                    return None
                if grad.shape != parameter.shape or grad.device != parameter.device:
                    return None
                if not (grad.is_contiguous() and parameter.is_contiguous()) or grad.is_neg():
                    with torch.no_grad():
                        grad = _native.laid_out_as(parameter.detach(), grad)
            found.append(grad)
        return found

    def same(self, grads: list[Any]) -> bool:
        """Whether each is there, a plain tensor of its dtype, and lies as its parameter does."""
        try:
            return (
                self._contiguous
                and PLAIN.issuperset(map(type, grads))
                and [*map(_dtype_of, grads)] == self._dtypes
                and [*map(_device_of, grads)] == self._devices
                and [*map(Tensor.size, grads)] == self._sizes
                and all(map(Tensor.is_contiguous, grads))
                and not any(map(Tensor.is_neg, grads))
            )
        except RuntimeError:  # a sparse one has no such thing
            return False
