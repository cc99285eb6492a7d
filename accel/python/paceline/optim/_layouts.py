# SPDX-License-Identifier: Apache-2.0
"""Where tensors lie in memory, and how, remembered to be compared with later.

Before each step an optimizer asks this about hundreds of tensors. PyTorch 2.10 and later offers C
functions for it (DLPack's exchange API, of which paceline/layouts.h tells): one call of the library
asks for all of them. Older releases are asked tensor by tensor, one question after the other. Each
question is then one pass in C (`map` of a method of Tensor), since a Python loop takes several
times as long.
"""

from __future__ import annotations

import array
import ctypes
import functools
import operator
from collections.abc import Collection, Iterable
from typing import Any, Callable

import torch

from paceline._core import library

Tensor = torch.Tensor

PLAIN = {Tensor, torch.nn.Parameter}  # types whose memory is what their address says
FAILURES = AttributeError, RuntimeError, TypeError  # of asking what is no tensor with memory
_WORDS, _WORDS_OF_DIMENSION = 4, 2  # of a layout in paceline/layouts.h
dtype_of = operator.attrgetter("dtype")


def equal(facts: Iterable[object], expected: Iterable[object]) -> bool:
    """Whether the facts are those expected, of which there are as many. Makes no list."""
    return all(map(operator.eq, facts, expected))


class Exchange:
    """The library's functions that ask PyTorch's own for layouts.

    Raises AttributeError or OSError if PyTorch or the library has none.
    """

    def __init__(self) -> None:
        capsule = Tensor.__dlpack_c_exchange_api__
        pointer = library.typed(
            ctypes.pythonapi,
            "PyCapsule_GetPointer",
            ctypes.py_object,
            ctypes.c_char_p,
            result=ctypes.c_void_p,
        )
        self.table = pointer(capsule, b"dlpack_exchange_api")
        # PyDLL: the functions call Python's, and an exception of theirs is raised here.
        function = functools.partial(library.typed, library.opened(ctypes.PyDLL))
        given = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p
        self.read = function("paceline_layouts_read", *given, ctypes.c_uint64)
        self.same = function("paceline_layouts_same", *given, ctypes.c_void_p)


@functools.cache
def exchange() -> Exchange | None:
    try:
        return Exchange()
    except (AttributeError, OSError):
        return None


class Layouts:
    """How the elements of plain tensors lie in memory, and where."""

    def same(self, tensors: Collection[Any], are_the_same: bool = False) -> bool:
        """Whether as many tensors lie where and as the remembered ones did. `are_the_same`: the
        caller knows that they are the objects that are remembered.
        """
        raise NotImplementedError

    def set_addresses(self, tensors: Collection[Any], addresses: array.array[int]) -> bool:
        """Sets where the tensors begin. Returns whether they lie as the remembered ones did,
        wherever that is; false if one with elements has no memory.
        """
        raise NotImplementedError


class Read(Layouts):
    """Read through DLPack, all in one call. `signs`: whether to compare lazy negation too."""

    def __init__(self, through: Exchange, tensors: Collection[Any], signs: bool) -> None:
        self._through = through
        self._objects = array.array("Q", map(id, tensors))
        self._given = array.array("Q", self._objects)
        words = _WORDS * len(tensors) + _WORDS_OF_DIMENSION * sum(map(Tensor.dim, tensors))
        self._words = array.array("q", bytes(8 * words))
        self._negative = [*map(Tensor.is_neg, tensors)] if signs else []
        status = through.read(*self._arguments(self._objects), words)
        if status != 0:
            raise RuntimeError(f"paceline.optim: no layouts of tensors (code {status})")

    def same(self, tensors: Collection[Any], are_the_same: bool = False) -> bool:
        return self._compare(tensors, self._objects if are_the_same else None, None)

    def set_addresses(self, tensors: Collection[Any], addresses: array.array[int]) -> bool:
        return self._compare(tensors, None, addresses.buffer_info()[0])

    def _compare(
        self, tensors: Collection[Any], objects: array.array[int] | None, addresses: int | None
    ) -> bool:
        # DLPack's functions take no other objects than tensors.
        if len(tensors) != len(self._objects) or not PLAIN.issuperset(map(type, tensors)):
            return False
        if objects is None:
            objects = self._given  # filled in place: a new array would cost more than all the rest
            for index, identity in enumerate(map(id, tensors)):
                objects[index] = identity
        try:
            return self._through.same(*self._arguments(objects), addresses) == 1 and equal(
                map(Tensor.is_neg, tensors), self._negative
            )
        except FAILURES:
            return False

    def _arguments(self, objects: array.array[int]) -> tuple[int, int, int, int]:
        place, count = objects.buffer_info()
        return self._through.table, place, count, self._words.buffer_info()[0]


class Asked(Layouts):
    """Asked of PyTorch fact by fact. The first one is the address."""

    def __init__(self, tensors: Collection[Any], facts: list[Callable[[Any], object]]) -> None:
        self._seen = [(fact, [*map(fact, tensors)]) for fact in facts]

    def same(self, tensors: Collection[Any], are_the_same: bool = False) -> bool:
        return self._agree(tensors, self._seen)

    def set_addresses(self, tensors: Collection[Any], addresses: array.array[int]) -> bool:
        (_, places), *others = self._seen
        if not PLAIN.issuperset(map(type, tensors)) or not self._agree(tensors, others):
            return False
        try:
            for index, address in enumerate(map(Tensor.data_ptr, tensors)):
                addresses[index] = address
        except RuntimeError:  # a tensor without memory, such as a sparse one
            return False
        # Empty tensors have no memory. Others have, but for zeros that PyTorch has not made yet.
        return addresses.count(0) == places.count(0)

    @staticmethod
    def _agree(tensors: Collection[Any], seen: list[tuple[Callable[[Any], object], Any]]) -> bool:
        try:
            return all(equal(map(fact, tensors), expected) for fact, expected in seen)
        except FAILURES:
            return False


def of(tensors: Collection[Any]) -> Layouts:
    """Raises RuntimeError if a tensor has no memory of its own."""
    through = exchange()
    if through is not None:
        return Read(through, tensors, signs=True)
    # For contiguous tensors the number of elements says it all, and is cheaper to ask than sizes
    # and strides.
    contiguous = all(map(Tensor.is_contiguous, tensors))
    facts: list[Callable[[Any], object]] = [Tensor.data_ptr, dtype_of, Tensor.is_neg]
    facts += [Tensor.numel if contiguous else Tensor.size]
    facts += [Tensor.is_contiguous if contiguous else Tensor.stride, Tensor.get_device]
    return Asked(tensors, facts)


def of_state(tensors: Collection[Any]) -> Layouts:
    """The same of an optimizer's state, whose values nothing but the optimizer makes."""
    through = exchange()
    if through is not None:
        return Read(through, tensors, signs=False)
    sizes = (
        [operator.attrgetter("nbytes")] if hasattr(Tensor, "nbytes") else [Tensor.numel, dtype_of]
    )
    return Asked(tensors, [Tensor.data_ptr, *sizes])
