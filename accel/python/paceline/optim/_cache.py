# SPDX-License-Identifier: Apache-2.0
"""A table that serves many steps. Filling a table row by row is most of the cost of a step of many
small tensors, so an optimizer keeps its last table. Before every step the table is compared with
the optimizer: are parameters and state the same tensors in the same memory, laid out as before? If
anything differs, the caller makes a new table, which costs time and nothing else.

Each question is one pass over all tensors in C (`map` of a method of Tensor), since a Python loop
takes several times as long. Lists of more than 1 KiB are avoided: behind a backward the allocator
sorts what was freed before it gives one. A deque is made of small blocks that Python reuses.
docs/designs/gpu.md lists what is compared.
"""

from __future__ import annotations

import array
import collections
import itertools
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Callable

import torch

from paceline.optim import _native, _sharded
from paceline.optim._native import Table, Tensor
from paceline.optim._settings import Settings

PLAIN = {Tensor, torch.nn.Parameter}  # types whose memory is what their address says
_grad_of, _dtype_of = operator.attrgetter("grad"), operator.attrgetter("dtype")
_version_of = operator.attrgetter("_version")
_FAILURES = AttributeError, RuntimeError, TypeError  # of asking what is no tensor with memory


def _equal(facts: Iterable[object], expected: Iterable[object]) -> bool:
    """Of as many facts as are expected. Makes no list."""
    return all(map(operator.eq, facts, expected))


class Layouts:
    """How the elements of tensors lie in memory, and where, unless only the layout matters. For
    contiguous tensors the number of elements says it all, and is cheaper to ask than sizes and
    strides.
    """

    def __init__(self, tensors: Collection[Tensor], places: bool = True) -> None:
        contiguous = all(map(Tensor.is_contiguous, tensors))
        facts: list[Callable[[Any], object]] = [
            # An address tells the device too.
            Tensor.data_ptr if places else Tensor.get_device,
            _dtype_of,
            Tensor.is_neg,
            Tensor.numel if contiguous else Tensor.size,
            Tensor.is_contiguous if contiguous else Tensor.stride,
        ]
        self._seen = [(fact, [*map(fact, tensors)]) for fact in facts]

    def same(self, tensors: Iterable[Any]) -> bool:
        """Of as many tensors as there were."""
        try:
            return all(_equal(map(fact, tensors), seen) for fact, seen in self._seen)
        except _FAILURES:
            return False


class State:
    """Which values an optimizer's state has, under which names, and where its tensors lie. Holds
    neither the values nor their dicts, so that memory is free as soon as the program lets it go.
    """

    def __init__(self, state: Mapping[Any, Any]) -> None:
        dicts, values = self._dicts(state), self._values(state)
        self._keys = [*map(id, state)]
        self._sizes = [*map(len, dicts)]
        self._names = [*itertools.chain.from_iterable(dicts)]
        # A new value may have the id of one that died. It is as good if it has the same memory.
        self._ids = [*map(id, values)]
        try:
            plain = PLAIN.issuperset(map(type, values))
            self._memory = [(fact, [*map(fact, values)]) for fact in _MEMORY_OF[plain]]
        except RuntimeError:  # a tensor without memory, such as a sparse one
            self._memory = [(fact, [*map(fact, values)]) for fact in _MEMORY_OF[False]]

    def same(self, state: Mapping[Any, Any]) -> bool:
        if len(state) != len(self._keys):
            return False
        dicts = self._dicts(state)
        if len(dicts) != len(self._sizes) or not _equal(map(len, dicts), self._sizes):
            return False
        values = self._values(state)
        try:
            return (
                _equal(map(id, state), self._keys)
                and _equal(itertools.chain.from_iterable(dicts), self._names)
                and _equal(map(id, values), self._ids)
                and all(_equal(map(fact, values), seen) for fact, seen in self._memory)
            )
        except _FAILURES:
            return False

    @staticmethod
    def _dicts(state: Mapping[Any, Any]) -> Collection[dict[Any, Any]]:
        # A program may keep values of its own beside the dicts of parameters.
        return collections.deque(filter(_is_dict, state.values()))

    @classmethod
    def _values(cls, state: Mapping[Any, Any]) -> Collection[Any]:
        return collections.deque(itertools.chain.from_iterable(map(dict.values, cls._dicts(state))))


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _memory_of(value: Any) -> object:
    if not isinstance(value, Tensor):
        return None
    own = _sharded.local(value)
    try:
        return own.data_ptr(), own.numel(), own.dtype
    except RuntimeError:
        return None


# By whether all values are plain tensors: then each question is one call of C.
_MEMORY_OF: dict[bool, list[Callable[[Any], object]]] = {
    True: [Tensor.data_ptr, operator.attrgetter("nbytes")]
    if hasattr(Tensor, "nbytes")
    else [Tensor.data_ptr, Tensor.numel, _dtype_of],
    False: [_memory_of],
}


class Gradients:
    """How gradients lay in memory when the table was made. They are new tensors in every step."""

    def __init__(self, grads: Collection[Tensor], parameters: Collection[Tensor]) -> None:
        self._dtypes = [*map(_dtype_of, grads)]
        # None if some do not lie as their parameters do: then each is looked at.
        alike = all(map(_native.alike, parameters, grads))
        self._layouts = Layouts(grads, places=False) if alike else None
        self._empty = sum(parameter.numel() == 0 for parameter in parameters)

    def set_addresses(self, grads: Collection[Any], addresses: array.array[int]) -> bool:
        """Sets where the gradients begin, if each is there and lies as its parameter does."""
        if not PLAIN.issuperset(map(type, grads)):
            return False
        if self._layouts is None or not self._layouts.same(grads):
            return False
        for index, address in enumerate(map(Tensor.data_ptr, grads)):
            addresses[index] = address
        # Others than empty tensors have memory, but for zeros that PyTorch has not made yet.
        return addresses.count(0) == self._empty

    def laid_out(
        self, grads: Iterable[Any], parameters: Iterable[Tensor]
    ) -> list[Tensor | None] | None:
        """The gradients, those that lie otherwise than their parameter copied; None stays None.
        None for all if one is of another kind than when the table was made.
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
        """Called when all rows are there: what they point to is remembered as it is now."""
        self._state = State(optimizer.state)
        self._settings.read(optimizer)
        self._states = self._settings.states
        self._parameters = [[*group["params"]] for group in optimizer.param_groups]
        self.sharded = any(map(_sharded.is_one, self.written))
        parts = self._parts(self.written)
        self._layouts = Layouts(parts)
        # If the program writes into a 16-bit parameter, its master is made anew.
        self._halves = [one for one in self.written if one.dtype in _native.HALVES]
        self.read_versions()
        self._others = self._without_gradient(optimizer)
        self._gradients = Gradients(self._keep[::2], parts)
        self._keep = []
        self._pointers = array.array("Q", bytes(8 * len(self)))  # of the gradients

    def read_versions(self) -> None:
        """After a step: later writes into 16-bit parameters are the program's."""
        self._versions = [*map(_version_of, self._halves)]

    def fits(self, optimizer: Any) -> bool:
        """Whether every tensor is still the one that the table points to. Reads the options of the
        groups for the next step.
        """
        return (
            self._has_the_same_parameters(optimizer.param_groups)
            and self._state.same(optimizer.state)
            and self._needs_the_same_states(optimizer)
            and self._layouts.same(self._parts(self.written))
            and _equal(map(_version_of, self._halves), self._versions)
            and all(parameter.grad is None for parameter in self._others)
        )

    def gradients_now(self) -> Collection[Any]:
        """Those of all rows, None if a parameter has none. The caller holds them while it asks:
        each request for one that nobody holds makes a new Python object.
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
        """This rank's part of each tensor; None stays None."""
        if not self.sharded:
            return tensors
        with torch.no_grad():
            return [*map(_sharded.local, tensors)]

    def _without_gradient(self, optimizer: Any) -> list[Tensor]:
        """Parameters that had no gradient when the table was made, so they are not in it."""
        ours = {id(parameter) for parameter in self.written}
        return [p for group in optimizer.param_groups for p in group["params"] if id(p) not in ours]
