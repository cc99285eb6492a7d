# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's tensors are, asked by the library of many in one call (paceline/optim_reader.h).
How Python and PyTorch have that is tried on examples first; where it is otherwise there is no
reader, and each tensor is asked by itself.
"""

from __future__ import annotations

import array
import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from paceline._core import library

Tensor = torch.Tensor

SEEN = 32  # bytes of paceline_optim_seen
_TOLD = "layout", "data_ptr", "dtype", "device_type", "device_index", "dim", "sizes", "strides"
# PyTorch's C++, which makes no promise: not called in releases that were not there to be tried.
_TRIED = 2, 14
_INNER = {
    "grad": ("libc10.so", "_ZNK3c1010TensorImpl4gradEv"),
    "is_neg": ("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE"),
    "is_inference": ("libtorch_cpu.so", "_ZN2at6native12is_inferenceERKNS_6TensorE"),
    "version": ("libtorch_cpu.so", "_ZNK2at10TensorBase8_versionEv"),
    "bump_version": ("libtorch_cpu.so", "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"),
}


def _each_of(objects: tuple[Any, ...]) -> Any:
    return array.array("Q", map(id, objects))


def _tuples_can_be_read() -> bool:
    """Whether a tuple is its head and then the addresses of its items, which are their ids."""
    if sys.implementation.name != "cpython":
        return False
    for example in ((), (None,), (1, "two", [3.0], (4,), Tensor)):
        items = ctypes.string_at(
            id(example) + tuple.__basicsize__, len(example) * tuple.__itemsize__
        )
        if items != _each_of(example).tobytes():
            return False
    return True


_reads_tuples = _tuples_can_be_read()


class Held:
    """Objects that are asked again and again: kept, so that no others get their ids. A step makes
    no list of so many, since memory for one is looked for anew each time: 30 us where a backward
    has freed much before.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self.all = tuple(objects)
        self.count = len(self.all)
        # Of each object its id, in 8 bytes.
        self._ids = None if _reads_tuples else _each_of(self.all)
        self.address = (
            id(self.all) + tuple.__basicsize__ if self._ids is None else self._ids.buffer_info()[0]
        )


def layout_of(tensor: Tensor) -> tuple[object, ...]:
    return (
        tensor.data_ptr(),
        tensor.dtype,
        tensor.device,
        tensor.size(),
        tensor.stride(),
        tensor.is_neg(),
    )


class _Terms(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("strided", ctypes.c_int32),
        *(
            (what, ctypes.c_uint64)
            for what in ("type", "handle", "tensor", "parameter", "dict", "list")
        ),
        *((f"get_{what}", ctypes.c_void_p) for what in _TOLD),
        *(
            (what, ctypes.c_void_p)
            for what in ("list_size", "list_item", "dict_next", *_INNER, "undefined")
        ),
    ]


def _loaded(name: str) -> Any:
    return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def _address(library: Any, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def inner(library: str, name: str) -> int:
    """Where a function of PyTorch's C++ is. Raises where there is none, and where the release was
    not tried, which may have another of that name.
    """
    if tuple(map(int, torch.__version__.split(".")[:2])) > _TRIED:
        raise AttributeError(f"PyTorch {torch.__version__} was not tried")
    return _address(_loaded(library), name)


def _inner() -> dict[str, int]:
    try:
        return {what: inner(library, name) for what, (library, name) in _INNER.items()}
    except (AttributeError, OSError, ValueError):
        return {}


class Reader:
    """Asks PyTorch's stable C interface, the one that compiled models use, and its C++ for what
    that does not tell. Makes no object for it. Objects are passed as tuples. Raises where there is
    no such interface.
    """

    def __init__(self) -> None:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise RuntimeError("other threads may change what is read")
        torch_cpu = _loaded("libtorch_cpu.so")
        # A tensor's object has the address of its type, and PyTorch's own tensor, which is one
        # pointer.
        one = torch.empty(0, device="cpu")
        words = array.array("Q", ctypes.string_at(id(one), Tensor.__basicsize__))
        terms = _Terms(ctypes.sizeof(_Terms), torch_cpu.aoti_torch_layout_strided())
        terms.type, terms.handle = (8 * words.index(word) for word in (id(Tensor), one._cdata))
        terms.tensor, terms.parameter, terms.dict, terms.list = map(
            id, (Tensor, torch.nn.Parameter, dict, list)
        )
        for what in _TOLD:
            name = f"aoti_torch_get_{what}"
            if what != "layout" or hasattr(torch_cpu, name):
                setattr(terms, f"get_{what}", _address(torch_cpu, name))
        for what, name in (
            ("list_size", "PyList_Size"),
            ("list_item", "PyList_GetItem"),
            ("dict_next", "PyDict_Next"),
        ):
            setattr(terms, what, _address(ctypes.pythonapi, name))
        found = _inner()
        for what, address in found.items():
            setattr(terms, what, address)
        if found:
            # Of a tensor without a gradient, what is told of it is the one that stands for none.
            grad = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(found["grad"])(one._cdata)
            terms.undefined = ctypes.c_void_p.from_address(grad).value
        self.knows_gradients = bool(found)  # and versions
        self._terms = ctypes.byref(terms)
        # No other thread may change a tensor meanwhile, so the interpreter lock is kept.
        function = functools.partial(library.typed, library.opened(ctypes.PyDLL))
        pointer, count = ctypes.c_void_p, ctypes.c_uint64
        many = pointer, pointer, count
        self._places = function("paceline_optim_places", *many, pointer)
        self._see = function("paceline_optim_see", *many, pointer)
        self._is_as_seen = function("paceline_optim_is_as_seen", *many, pointer)
        self._see_state = function(
            "paceline_optim_see_state", pointer, ctypes.py_object, pointer, count, pointer
        )
        self._state_is = function(
            "paceline_optim_state_is_as_seen", pointer, ctypes.py_object, pointer, count
        )
        self._gradients = function("paceline_optim_gradients", *many, pointer, pointer)
        self._list_is = function(
            "paceline_optim_list_is", pointer, ctypes.py_object, pointer, count
        )
        self._versions = function("paceline_optim_versions", *many, pointer)
        self._versions_are = function("paceline_optim_versions_are", *many, pointer)
        self._mark_written = function("paceline_optim_mark_written", *many)

    def places(self, tensors: Held, places: int) -> None:
        """Sets where each begins, in 8 bytes. RuntimeError where one has no place, as elsewhere."""
        _check(self._places(self._terms, tensors.address, tensors.count, places))

    def see(self, tensors: Held, rows: int) -> None:
        _check(self._see(self._terms, tensors.address, tensors.count, rows))

    def are_as_seen(self, objects: Held, rows: int) -> bool:
        return bool(self._is_as_seen(self._terms, objects.address, objects.count, rows) == 1)

    def list_is(self, objects: Any, expected: Held) -> bool:
        return bool(self._list_is(self._terms, objects, expected.address, expected.count) == 1)

    def see_state(self, state: Any, rows: int, capacity: int) -> bool:
        """Whether that can be: the state has as many keys, names and values, and what it has for
        each key is a dict.
        """
        used = ctypes.c_uint64()
        status = self._see_state(self._terms, state, rows, capacity, ctypes.byref(used))
        return bool(status == 0 and used.value == capacity)

    def state_is_as_seen(self, state: Any, rows: int, count: int) -> bool:
        return bool(self._state_is(self._terms, state, rows, count) == 1)

    def gradients(self, tensors: Held, rows: int, places: int) -> bool:
        """Sets where the gradient of each begins. False where one is not there, or other than its
        row tells.
        """
        return bool(self._gradients(self._terms, tensors.address, tensors.count, rows, places) == 1)

    def versions(self, tensors: Held, versions: int) -> bool:
        """Sets how often each was written. False where one of them does not count that."""
        return bool(self._versions(self._terms, tensors.address, tensors.count, versions) == 0)

    def versions_are(self, tensors: Held, versions: int) -> bool:
        return bool(self._versions_are(self._terms, tensors.address, tensors.count, versions) == 1)

    def mark_written(self, tensors: Held) -> bool:
        """False where one of them does not count that; others may be marked."""
        return bool(self._mark_written(self._terms, tensors.address, tensors.count) == 0)


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(
            f"paceline.optim: PyTorch does not tell where a tensor lies (code {status})"
        )


def _tells_places(reader: Reader) -> bool:
    """Whether it tells the places of tensors, and tells those apart that differ, as PyTorch itself
    does.
    """
    one = torch.ones(3, 2, device="cpu")
    examples = (
        one,
        one[:2],
        one[1:],
        one.t(),
        one.view(6),
        one.to(torch.bfloat16),
        torch.nn.Parameter(one),
        one[:0],
    )
    count = len(examples)
    rows = array.array("Q", bytes(SEEN * count))
    reader.see(Held(examples), rows.buffer_info()[0])
    _, types, places, layouts = (rows[part :: SEEN // 8] for part in range(SEEN // 8))
    expected = [layout_of(example)[1:] for example in examples]
    alike = all(
        (expected[i] == expected[j]) == (layouts[i] == layouts[j])
        for i in range(count)
        for j in range(i)
    )
    return (
        alike
        and [*types] == [id(type(example)) for example in examples]
        and [*places] == [*map(Tensor.data_ptr, examples)]
    )


def _tells_lists(reader: Reader) -> bool:
    """Whether it sees what a list holds."""
    held = Held((1.5, "two", Tensor))
    others: list[Any] = [
        [],
        [*held.all[:2]],
        [*held.all, None],
        [*reversed(held.all)],
        held.all,
        None,
    ]
    return reader.list_is([*held.all], held) and not any(
        reader.list_is(other, held) for other in others
    )


def _tells_states(reader: Reader) -> bool:
    """Whether it sees which objects a dict of dicts has."""
    tensor, key, other = torch.ones(2, device="cpu"), torch.ones(2, device="cpu"), object()
    state = {key: {"a": tensor, "b": other}, "key": {}}
    rows = array.array("Q", bytes(SEEN * 6))
    address = rows.buffer_info()[0]
    seen = reader.see_state(state, address, 6)
    objects = [*map(id, (key, *state[key], *state[key].values(), "key"))]
    objects[2], objects[3] = objects[3], objects[2]  # names and values in turn
    same = reader.state_is_as_seen(state, address, 6)
    state[key]["b"] = None
    changed = not reader.state_is_as_seen(state, address, 6)
    return (
        seen
        and [*rows[:: SEEN // 8]] == objects
        and same
        and changed
        and not reader.see_state(state, address, 5)
    )


def _tells_gradients(reader: Reader) -> bool:
    """Whether it tells where gradients lie, those apart that are other than they were, and counts
    as PyTorch does.
    """
    held = Held(torch.ones(3, 2, device="cpu").requires_grad_() for _ in range(2))
    leaves = held.all
    rows, places = array.array("Q", bytes(SEEN * 2)), array.array("Q", bytes(16))
    reader.see(held, rows.buffer_info()[0])

    def told() -> bool:
        return reader.gradients(held, rows.buffer_info()[0], places.buffer_info()[0])

    if told():
        return False
    for leaf in leaves:
        leaf.grad = torch.zeros(3, 2, device="cpu")
    grads = [leaf.grad for leaf in leaves]
    if not told() or [*places] != [*map(Tensor.data_ptr, grads)]:
        return False
    for other in (
        None,
        torch._neg_view(grads[1]),
        grads[1].t().contiguous().t(),
        grads[1][:1].expand(3, 2),
    ):
        leaves[1].grad = other
        if told():
            return False
    told_counts = array.array("q", bytes(16))
    address = told_counts.buffer_info()[0]
    counts = [leaf._version for leaf in leaves]
    same = (
        reader.versions(held, address)
        and [*told_counts] == counts
        and reader.versions_are(held, address)
    )
    marked = reader.mark_written(held) and [leaf._version for leaf in leaves] == [
        count + 1 for count in counts
    ]
    return same and marked and not reader.versions_are(held, address)


_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", int)


def is_in_a_mode() -> bool:
    """Whether what is done with tensors goes to someone else, who may make other tensors of it
    (FakeTensorMode).
    """
    return _modes() > 0


_found: list[Reader | None] = []


def reader() -> Reader | None:
    """None where it cannot be had, or tells something else than tensors do: a PyTorch without that
    interface, a library of another release. Also while a mode of PyTorch is on that makes other
    tensors than it should, if that is when it is first asked for.
    """
    if _found:
        return _found[0]
    with torch.inference_mode(False):
        made = _made()
    if made is None and is_in_a_mode():
        return None
    _found.append(made)
    return made


def _made() -> Reader | None:
    try:
        found = Reader()
        if not (_tells_places(found) and _tells_lists(found) and _tells_states(found)):
            return None
        found.knows_gradients = found.knows_gradients and _tells_gradients(found)
        return found
    except Exception:
        return None
