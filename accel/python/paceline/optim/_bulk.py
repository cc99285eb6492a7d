# SPDX-License-Identifier: Apache-2.0
"""Questions asked of many objects in one call, since calls are what a step of many small tensors costs its host. What Python and PyTorch have for
that is tried on examples first, and used where it answers rightly; elsewhere each object is asked."""

from __future__ import annotations

import array
import ctypes
import functools
import sys
from collections.abc import Iterable
from typing import Any

import torch

from paceline import _library

Tensor = torch.Tensor


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

    def read(self, tensors: Iterable[Any]) -> None:
        """All of them, plain tensors that have memory. RuntimeError where PyTorch refuses one."""
        held = tuple(tensors)
        exchange = _exchange()
        if exchange is None:
            self.set([*map(Tensor.data_ptr, held)])
        else:
            _ask(exchange, held, self.address, None)


def layouts(tensors: tuple[Any, ...]) -> object:
    """Equal to another answer where as many tensors lay at the same addresses, of the same dtypes, devices, sizes and strides. Plain tensors;
    RuntimeError where PyTorch refuses one."""
    exchange = _exchange()
    if exchange is None:
        return [*map(layout_of, tensors)]
    count = len(tensors)
    found = array.array("Q", bytes(16 * count))
    address = found.buffer_info()[0]
    _ask(exchange, tensors, address, address + 8 * count)
    return found


def layout_of(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.size(), tensor.stride()


def _ask(exchange: int, tensors: tuple[Any, ...], places: int, hashes: int | None) -> None:
    status = _places()(exchange, identities(tensors), len(tensors), places, hashes)
    if status != 0:
        raise RuntimeError(f"paceline.optim: PyTorch does not tell where a tensor lies (code {status})")


@functools.cache
def _places() -> Any:
    pointer = ctypes.c_void_p
    # It calls PyTorch for each tensor, so the interpreter lock is kept.
    library = _library.opened(ctypes.PyDLL)
    return _library.typed(library, "paceline_optim_places", pointer, pointer, ctypes.c_uint64, pointer, pointer)


@functools.cache
def _exchange() -> int | None:
    """PyTorch's table of functions for DLPack, which tell of a tensor without making an object for that. None where it has none."""
    try:
        capsule = Tensor.__dlpack_c_exchange_api__
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.argtypes, pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
        exchange: int = pointer_of(capsule, b"dlpack_exchange_api")
        one = torch.ones(3, 2, device="cpu")
        examples = one, one[:2], one[1:], one.t(), one.view(6), one.to(torch.bfloat16), torch.nn.Parameter(one), one[:0]
        count = len(examples)
        found = (ctypes.c_uint64 * (2 * count))()
        _ask(exchange, examples, ctypes.addressof(found), ctypes.addressof(found) + 8 * count)
        expected = [layout_of(example)[1:] for example in examples]
        alike = [[a == b for a in expected] for b in expected] == [
            [a == b for a in found[count:]] for b in found[count:]
        ]
        return exchange if alike and found[:count] == [*map(Tensor.data_ptr, examples)] else None
    except Exception:  # a PyTorch without it, a library of another release
        return None
