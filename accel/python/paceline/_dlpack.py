# SPDX-License-Identifier: Apache-2.0
"""Arrays of any framework by DLPack (https://dmlc.github.io/dlpack): where their memory lies and
what is in it, without a copy and without a package. Both capsules are read, that of DLPack 1.0 and
the one before.
"""

from __future__ import annotations

import ctypes
from typing import Any

CPU, CPU_PINNED = 1, 3  # kDLCPU, kDLCUDAHost
READ_ONLY = 1
NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_is_named = ctypes.pythonapi.PyCapsule_IsValid
_is_named.argtypes, _is_named.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int


class Array:
    """A view of an array that lies in one piece in the CPU's memory, which it keeps alive. `dtype`
    reads as "float32" or "bfloat16".

    ValueError, which names the array by `name`: no DLPack, another device, gaps between elements,
    or `written` where it is read-only.
    """

    def __init__(self, array: Any, name: str, *, written: bool) -> None:
        export = getattr(array, "__dlpack__", None)
        if export is None:
            raise ValueError(
                f"{name} is of {type(array).__name__}, which has no __dlpack__: pass an array of"
                " NumPy, JAX, PyTorch, Paddle or CuPy, or another that has"
            )
        # Asked before the export, which for some is a copy or a wait.
        device = getattr(array, "__dlpack_device__", lambda: (CPU, 0))()[0]
        if device not in (CPU, CPU_PINNED):
            raise ValueError(
                f"{name} is on a device (DLPack's type {int(device)}): it must be on the CPU"
            )
        try:
            self._capsule = _exported(export)
        except BufferError as error:  # DLPack's own word for what cannot be told in a capsule
            raise ValueError(f"{name}: {error}") from None
        read_only = False
        if _is_named(self._capsule, b"dltensor_versioned"):
            managed = _Versioned.from_address(_pointer_of(self._capsule, b"dltensor_versioned"))
            if managed.major != 1:
                raise ValueError(
                    f"{name} comes by DLPack {managed.major}.{managed.minor}: 1 is known here"
                )
            read_only = bool(managed.flags & READ_ONLY)
            tensor = managed.tensor
        else:
            tensor = _Tensor.from_address(_pointer_of(self._capsule, b"dltensor"))
        if written and read_only:
            raise ValueError(
                f"{name} is read-only: pass one that can be written to (numpy.array(...,"
                " copy=True))"
            )
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        if tensor.strides and not _is_in_one_piece(
            shape, tuple(tensor.strides[i] for i in range(tensor.ndim))
        ):
            raise ValueError(
                f"{name} must be contiguous, row by row: pass numpy.ascontiguousarray of it, or its"
                " like"
            )
        self.shape = shape
        self.count = 1
        for size in shape:
            self.count *= size
        self.dtype = f"{NAMES.get(tensor.code, 'other')}{tensor.bits}" + (
            f"x{tensor.lanes}" if tensor.lanes != 1 else ""
        )
        self.size = self.count * tensor.bits * tensor.lanes // 8
        self.pointer = (tensor.data or 0) + tensor.byte_offset


def _exported(export: Any) -> Any:
    try:
        return export(max_version=(1, 0))
    except TypeError:  # older than 1.0
        return export()


def _is_in_one_piece(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size == 0:
            return True
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
