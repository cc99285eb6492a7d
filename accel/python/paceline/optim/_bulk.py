# SPDX-License-Identifier: Apache-2.0
"""Questions asked of many objects in one call, since calls are what a step of many small tensors costs its host. What Python and PyTorch have for
that is tried on examples first, and used where it answers rightly; elsewhere each object is asked."""

from __future__ import annotations

import array
import ctypes
import functools
import os
import sys
from typing import Any

import torch

from paceline import _library

Tensor = torch.Tensor

_SEEN = 32  # bytes of what is seen of one
_TOLD = "layout", "data_ptr", "dtype", "device_type", "device_index", "dim", "sizes", "strides"


def _asked_each(objects: tuple[Any, ...]) -> bytes:
    return array.array("Q", map(id, objects)).tobytes()


def _read_from_tuple(objects: tuple[Any, ...]) -> bytes:
    return ctypes.string_at(id(objects) + tuple.__basicsize__, len(objects) * tuple.__itemsize__)


def _tuples_can_be_read() -> bool:
    """Whether a tuple is its head and then the addresses of its items, which are their ids."""
    if sys.implementation.name != "cpython":
        return False
    examples = (), (None,), (1, "two", [3.0], (4,), Tensor)
    return all(_read_from_tuple(example) == _asked_each(example) for example in examples)


# Of each object its id, in 8 bytes: no other's for as long as it lives.
identities = _read_from_tuple if _tuples_can_be_read() else _asked_each


class Places:
    """Room for the addresses of so many tensors: of the elements of each in memory, 0 where it has none."""

    def __init__(self, count: int) -> None:
        self.now = array.array("Q", bytes(8 * count))
        self.address = self.now.buffer_info()[0]

    def set(self, places: list[int]) -> None:
        self.now[:] = array.array("Q", places)

    def read(self, tensors: tuple[Any, ...]) -> None:
        """All of them, plain tensors that have memory. RuntimeError where PyTorch refuses one."""
        reader = _reader()
        if reader is None:
            self.set([*map(Tensor.data_ptr, tensors)])
        else:
            reader.places(tensors, self.address)


class Seen:
    """What tensors were: of these types, at addresses, of dtypes, devices, sizes and strides; the same objects too, unless others that lie so will do.
    Does not hold them, so that an object may have taken another one's address. RuntimeError where PyTorch refuses one."""

    def __init__(self, tensors: tuple[Tensor, ...], themselves: bool = True) -> None:
        reader = _reader()
        self._themselves = themselves
        self._each = None if reader else self._by_one(tensors)
        self._rows = array.array("Q", bytes(_SEEN * len(tensors)))
        self._address = self._rows.buffer_info()[0]
        self._count = len(tensors)
        if reader:
            reader.see(tensors, self._address)
        if not themselves:
            self._rows[:: _SEEN // 8] = array.array("Q", bytes(8 * self._count))

    def same(self, objects: tuple[Any, ...]) -> bool:
        """Whether that is what they are."""
        if len(objects) != self._count:
            return False
        reader = _reader()
        if reader is not None and self._each is None:
            return reader.are_as_seen(objects, self._address)
        try:
            return self._each == self._by_one(objects)
        except (AttributeError, RuntimeError, TypeError):  # no tensor, or one that has no place
            return False

    def _by_one(self, tensors: tuple[Any, ...]) -> list[tuple[object, ...]]:
        return [(id(one) if self._themselves else 0, type(one), *layout_of(one)) for one in tensors]


def layout_of(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.size(), tensor.stride()


class _Terms(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("strided", ctypes.c_int32),
        ("type", ctypes.c_uint64),
        ("handle", ctypes.c_uint64),
        *((f"get_{what}", ctypes.c_void_p) for what in _TOLD),
    ]


class Reader:
    """Asks PyTorch's stable C interface, the one that compiled models use, without making an object for it. Raises where there is none."""

    def __init__(self) -> None:
        torch_cpu = ctypes.CDLL("libtorch_cpu.so", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        told = {
            f"get_{what}": ctypes.cast(getattr(torch_cpu, f"aoti_torch_get_{what}"), ctypes.c_void_p) for what in _TOLD
        }
        # A tensor's object has the address of its type, and PyTorch's own tensor, which is one pointer.
        one = torch.empty(0, device="cpu")
        words = array.array("Q", ctypes.string_at(id(one), Tensor.__basicsize__))
        type_at, handle_at = (8 * words.index(word) for word in (id(type(one)), one._cdata))
        strided = torch_cpu.aoti_torch_layout_strided()
        self._terms = ctypes.byref(_Terms(ctypes.sizeof(_Terms), strided, type_at, handle_at, **told))
        # No other thread may change a tensor meanwhile, so the interpreter lock is kept.
        function = functools.partial(_library.typed, _library.opened(ctypes.PyDLL))
        pointer, count = ctypes.c_void_p, ctypes.c_uint64
        self._places = function("paceline_optim_places", pointer, pointer, count, pointer)
        self._see = function("paceline_optim_see", pointer, pointer, count, pointer)
        self._is_as_seen = function("paceline_optim_is_as_seen", pointer, pointer, count, pointer)

    def places(self, tensors: tuple[Any, ...], places: int) -> None:
        _check(self._places(self._terms, identities(tensors), len(tensors), places))

    def see(self, tensors: tuple[Any, ...], rows: int) -> None:
        _check(self._see(self._terms, identities(tensors), len(tensors), rows))

    def are_as_seen(self, objects: tuple[Any, ...], rows: int) -> bool:
        return bool(self._is_as_seen(self._terms, identities(objects), len(objects), rows) == 1)


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"paceline.optim: PyTorch does not tell where a tensor lies (code {status})")


def _is_right(reader: Reader) -> bool:
    """Whether it tells the places of tensors, and tells those apart that differ, as PyTorch itself does."""
    one = torch.ones(3, 2, device="cpu")
    examples = one, one[:2], one[1:], one.t(), one.view(6), one.to(torch.bfloat16), torch.nn.Parameter(one), one[:0]
    count = len(examples)
    rows = array.array("Q", bytes(_SEEN * count))
    reader.see(examples, rows.buffer_info()[0])
    _, types, places, layouts = (rows[part :: _SEEN // 8] for part in range(_SEEN // 8))
    expected = [layout_of(example)[1:] for example in examples]
    alike = all((expected[i] == expected[j]) == (layouts[i] == layouts[j]) for i in range(count) for j in range(i))
    return (
        alike
        and [*types] == [id(type(example)) for example in examples]
        and [*places] == [*map(Tensor.data_ptr, examples)]
    )


@functools.cache
def _reader() -> Reader | None:
    """None where it cannot be had, or tells something else than tensors do: a PyTorch without that interface, a library of another release."""
    try:
        reader = Reader()
        return reader if _is_right(reader) else None
    except Exception:
        return None
