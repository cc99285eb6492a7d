# SPDX-License-Identifier: Apache-2.0
"""A table that serves many steps. Filling a table row by row is most of the cost of a step of many
small tensors, so an optimizer keeps its last table. Before every step the table is compared with
the optimizer: are parameters and state the same tensors in the same memory, laid out as before? If
anything differs, the caller makes a new table, which costs time and nothing else.

Each question is one call or one pass over all tensors in C. Lists of more than 1 KiB are avoided:
behind a backward the allocator sorts what was freed before it gives one. A deque is made of small
blocks that Python reuses. docs/designs/gpu.md lists what is compared.
"""

from __future__ import annotations

import array
import collections
import itertools
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from paceline.optim import _layouts, _native, _sharded
from paceline.optim._layouts import FAILURES, PLAIN, dtype_of, equal
from paceline.optim._native import Table, Tensor
from paceline.optim._settings import Settings

_grad_of, _version_of = operator.attrgetter("grad"), operator.attrgetter("_version")


class State:
    """Which values an optimizer's state has, under which names, and where its tensors lie. It holds
    neither the values nor their dicts, so that memory is free as soon as the program releases it.
    """

    def __init__(self, state: Mapping[Any, Any]) -> None:
        self._keys = array.array("Q", map(id, state))
        # A program may keep values of its own beside the dicts of parameters.
        self._are_dicts = [isinstance(value, dict) for value in state.values()]
        self._all_are_dicts = all(self._are_dicts)
        dicts = self._dicts(state)
        values = self._values(dicts)
        self._names = [*map(tuple, dicts)]
        # A new value may have the id of one that died. It serves as well if it has the same memory.
        self._ids = array.array("Q", map(id, values))
        self._are_shards = [*map(_sharded.is_one, values)]
        self._sharded = any(self._are_shards)
        self._memory = None
        parts = self._parts(values)
        if PLAIN.issuperset(map(type, parts)):
            try:
                self._memory = _layouts.of_state(parts)
            except RuntimeError:  # a tensor without memory, such as a sparse one
                pass
        self._places = [] if self._memory else [*map(_memory_of, parts)]

    def same(self, state: Mapping[Any, Any]) -> bool:
        if len(state) != len(self._keys) or not equal(map(id, state), self._keys):
            return False
        dicts = self._dicts(state)
        try:
            if not equal(map(tuple, dicts), self._names):
                return False
            values = self._values(dicts)
            if not equal(map(id, values), self._ids):
                return False
            parts = self._parts(values)
        except FAILURES:  # a dict has been replaced by something else, or a DTensor
            return False
        if self._memory:
            return self._memory.same(parts, are_the_same=not self._sharded)
        return equal(map(_memory_of, parts), self._places)

    def _parts(self, values: Collection[Any]) -> Collection[Any]:
        if not self._sharded:
            return values
        with torch.no_grad():
            return _sharded.parts(values, self._are_shards)

    def _dicts(self, state: Mapping[Any, Any]) -> Collection[dict[Any, Any]]:
        if self._all_are_dicts:
            return state.values()
        return collections.deque(itertools.compress(state.values(), self._are_dicts))

    @staticmethod
    def _values(dicts: Iterable[dict[Any, Any]]) -> Collection[Any]:
        return collections.deque(itertools.chain.from_iterable(map(dict.values, dicts)))


def _memory_of(value: Any) -> object:
    if not isinstance(value, Tensor):
        return None
    try:
        return value.data_ptr(), value.numel(), value.dtype
    except RuntimeError:
        return None


class Gradients:
    """How gradients lay in memory when the table was made. Each step has new tensors."""

    def __init__(self, grads: Collection[Tensor], parameters: Collection[Tensor]) -> None:
        self._dtypes = [*map(dtype_of, grads)]
        # None if some do not lie as their parameters do: then each is looked at in every step.
        alike = all(map(_native.alike, parameters, grads))
        self._layouts = _layouts.of(grads) if alike else None

    def set_addresses(self, grads: Collection[Any], addresses: array.array[int]) -> bool:
        """Sets where the gradients begin. Returns whether all are there and lie as their parameters
        do.
        """
        return self._layouts is not None and self._layouts.set_addresses(grads, addresses)

    def laid_out(
        self, grads: Iterable[Any], parameters: Iterable[Tensor]
    ) -> list[Tensor | None] | None:
        """Returns the gradients, and copies of those that do not lie as their parameters do; None
        stays None. Returns None for all if one is of another kind than when the table was made.
        """
        found: list[Tensor | None] = []
        for parameter, grad, dtype in zip(parameters, grads, self._dtypes):
            if grad is not None:
                if (
                    type(grad) not in PLAIN
                    or grad.dtype is not dtype
                    or grad.layout is not torch.strided
                    or _native.has_no_memory(grad)
                    or grad.shape != parameter.shape
                    or grad.device != parameter.device
                ):
                    return None
                if not (grad.is_contiguous() and parameter.is_contiguous()) or grad.is_neg():
                    with torch.no_grad():
                        grad = _native.laid_out_as(parameter.detach(), grad)
            found.append(grad)
        return found


class CachedTable(Table):
    """Keeps the parameters alive from remember() on, not the state. As in PyTorch's own steps, no
    other thread may exchange tensors' memory while a step is under way.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def remember(self, optimizer: Any) -> None:
        """Remembers what the rows point to. Called when all rows are there."""
        self._state = State(optimizer.state)
        self._settings.read(optimizer)
        self._states = self._settings.states
        self._parameters = [[*group["params"]] for group in optimizer.param_groups]
        self._are_shards = [*map(_sharded.is_one, self.written)]
        self.sharded = any(self._are_shards)
        parts = self._parts(self.written)
        self._layouts = _layouts.of(parts)
        # If the program writes into a 16-bit parameter, its master is made anew.
        self._halves = [one for one in self.written if one.dtype in _native.HALVES]
        self.read_versions()
        self._others = self._without_gradient(optimizer)
        self._gradients = Gradients(self._keep[::2], parts)
        self._keep = []
        self._pointers = array.array("Q", bytes(8 * len(self)))  # of the gradients

    def read_versions(self) -> None:
        """Called after a step: later writes into 16-bit parameters are the program's."""
        self._versions = [*map(_version_of, self._halves)]

    def fits(self, optimizer: Any) -> bool:
        """Whether the table still points to every tensor. Reads the options of the groups for the
        next step.
        """
        return (
            self._has_the_same_parameters(optimizer.param_groups)
            and self._state.same(optimizer.state)
            and self._needs_the_same_states(optimizer)
            and self._layouts.same(self._parts(self.written), are_the_same=not self.sharded)
            and equal(map(_version_of, self._halves), self._versions)
            and all(parameter.grad is None for parameter in self._others)
        )

    def gradients_now(self) -> Collection[Any]:
        """Returns the gradients of all rows, None for a parameter without one. The caller holds
        them while it uses them: each request for one that is not held makes a new Python object.
        """
        return collections.deque(map(_grad_of, self.written))

    def _has_the_same_parameters(self, groups: list[dict[str, Any]]) -> bool:
        return len(self._parameters) == len(groups) and all(
            len(known) == len(group["params"]) and all(map(operator.is_, known, group["params"]))
            for known, group in zip(self._parameters, groups)
        )

    def _needs_the_same_states(self, optimizer: Any) -> bool:
        self._settings.read(optimizer)
        return self._states == self._settings.states

    def _parts(self, tensors: Collection[Any]) -> Collection[Any]:
        """Returns this rank's part of each of these parameters or gradients; None stays None."""
        if not self.sharded:
            return tensors
        with torch.no_grad():
            return _sharded.parts(tensors, self._are_shards)

    def lie_apart(self, grads: Collection[Any]) -> bool:
        """Whether a gradient of a shard has other elements than its parameter."""
        return self.sharded and _sharded.any_apart(self.written, self._are_shards, grads)

    def _without_gradient(self, optimizer: Any) -> list[Tensor]:
        """Returns the parameters that are not in the table, since they had no gradient."""
        ours = {id(parameter) for parameter in self.written}
        return [p for group in optimizer.param_groups for p in group["params"] if id(p) not in ours]
