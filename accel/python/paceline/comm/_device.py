# SPDX-License-Identifier: Apache-2.0
"""paceline/comm_device.h through ctypes: a communicator's part on a GPU, and what PyTorch knows of
it.
"""

from __future__ import annotations

import ctypes
import functools

import torch

from paceline._core import library
from paceline.comm import _native

KIND = "cuda"  # the type of devices that this module serves


class Used(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("pool_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
    ]


class Functions:
    """The exported functions, typed. Raises OSError or AttributeError where there are none."""

    def __init__(self) -> None:
        function = functools.partial(library.typed, library.opened())
        number, size, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
        self.open = function(
            "paceline_comm_device_open",
            pointer,
            ctypes.c_int32,
            ctypes.c_char_p,
            ctypes.POINTER(Used),
            ctypes.c_char_p,
            size,
        )
        # Behind all arguments of their own: the stream, and where the ticket goes.
        last = (pointer, ctypes.POINTER(size))
        one, two = (pointer, pointer, size, number), (pointer, pointer, pointer, size, number)
        self.allreduce_start = function("paceline_comm_device_allreduce_start", *one, *last)
        self.broadcast_start = function("paceline_comm_device_broadcast_start", *one, number, *last)
        self.reduce_start = function("paceline_comm_device_reduce_start", *one, number, *last)
        self.reduce_scatter_start = function(
            "paceline_comm_device_reduce_scatter_start", *two, *last
        )
        self.allgather_start = function("paceline_comm_device_allgather_start", *two, *last)
        self.alltoall_start = function("paceline_comm_device_alltoall_start", *two, *last)
        counts = ctypes.POINTER(size)
        self.alltoallv_start = function(
            "paceline_comm_device_alltoallv_start",
            pointer,
            pointer,
            counts,
            pointer,
            counts,
            number,
            *last,
        )
        self.wait = function("paceline_comm_device_wait", pointer, size, pointer)


@functools.cache
def functions() -> Functions:
    return Functions()


def of(device: torch.device | int | str) -> torch.device:
    """The device that is meant, with its index. Raises ValueError where this module does not serve
    it.
    """
    found = torch.device(KIND, device) if isinstance(device, int) else torch.device(device)
    if found.type != KIND:
        raise ValueError(
            f"paceline.comm: device is {found}: it must be a GPU of CUDA, for example cuda:0"
        )
    if found.type == "cuda" and found.index is None:
        return torch.device(KIND, torch.cuda.current_device())
    return found


def opened(handle: int, device: torch.device) -> Used:
    """What the communicator uses of its rank's device from now on. All ranks call it; raises
    RuntimeError on all of them where one is refused.
    """
    used = Used(size=ctypes.sizeof(Used))
    why = ctypes.create_string_buffer(_native.TEXT)
    code = functions().open(
        handle,
        device.index or 0,
        library.kernels_folder().encode(),
        ctypes.byref(used),
        why,
        len(why),
    )
    if code != _native.OK:
        raise RuntimeError(f"paceline.comm: {why.value.decode(errors='replace') or f'code {code}'}")
    return used


def stream_of(device: torch.device) -> int:
    """The stream that this thread computes in. Raises ValueError where it is being captured into a
    graph.
    """
    if torch.cuda.is_current_stream_capturing():
        raise ValueError(
            "paceline.comm: the current stream is being captured: a graph cannot wait for other"
            " ranks; make the call before or after it"
        )
    return torch.cuda.current_stream(device).cuda_stream


def use_in(stream: int, tensor: torch.Tensor) -> None:
    """Whoever frees the tensor, its memory is not given to another one before this stream has come
    to what it was given by then.
    """
    tensor.record_stream(torch.cuda.ExternalStream(stream, device=tensor.device))


def wait_for(stream: int, device: torch.device) -> None:
    """What the current stream gets from here on comes after all that this one has been given so
    far.
    """
    torch.cuda.current_stream(device).wait_stream(torch.cuda.ExternalStream(stream, device=device))
