# SPDX-License-Identifier: Apache-2.0
"""Passes batches between processes.

Batches are pickled. The bytes of dense CPU tensors lie in a slot of the shared slabs, or in the
message if they are few. PyTorch sends everything else in its own way: views of larger storages,
subclasses, and shared, sparse or quantized tensors.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
import threading
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # registers PyTorch's own reducers

from paceline.loader._native import NO_SLOT, Region

# Bytes. Smaller tensors travel in the message. Otherwise a small label that the program keeps would
# hold the slot of a whole batch, and a page would cost more than the copy.
SMALL = 16 * 1024
ALIGNMENT = 64
_NEW = hasattr(torch.Tensor, "untyped_storage")


def storage_of(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if _NEW else tensor.storage().untyped()


def shared_memory_left() -> int:
    """Returns the free bytes in /dev/shm, where PyTorch puts the batches of its workers."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _fits_shared_memory(size: int) -> bool:
    """Leaves room to spare, because other workers use the same memory."""
    return shared_memory_left() > 2 * size + (8 << 20)


class Slab:
    """The slot that a worker writes its present batch to. It is taken when the first tensor needs
    it. A slot is skipped while the worker itself still holds tensors in it, such as a cache.
    """

    def __init__(self, region: Region, worker: int) -> None:
        self._region, self._worker = region, worker
        self._type = ctypes.c_ubyte * region.slot_bytes
        self._mine: dict[int, weakref.ref[Any]] = {}
        self._buffer: Any = None
        self.slot = -1
        self._address = 0
        self._end = 0
        self.used = False

    def allocate(self, size: int) -> int:
        """Returns an offset in the slot, or -1 if no slot is free or the slot is full."""
        if self.slot < 0:
            avoid = sum(1 << slot for slot, buffer in self._mine.items() if buffer() is not None)
            slot = self._region.claim(self._worker, avoid)
            if slot >= NO_SLOT:
                return -1
            self.slot = slot
            self._address = self._region.address(self._worker, slot)
            self._buffer = self._type.from_address(self._address)
            self._mine[slot] = weakref.ref(self._buffer)
            self._end = 0
        begin = -(-self._end // ALIGNMENT) * ALIGNMENT
        if begin + size > self._region.slot_bytes:
            return -1
        self._end = begin + size
        return begin

    def storage(self, size: int) -> Any:
        """Returns memory of the slot as a storage, in which a tensor can be made; None if there is
        no room."""
        begin = self.allocate(size)
        if begin < 0:
            return None
        return storage_of(
            torch.frombuffer(self._buffer, dtype=torch.uint8, count=size, offset=begin)
        )

    def offset_of(self, address: int) -> int:
        """Returns the offset of memory that `storage` gave for this batch, or -1 for other
        memory."""
        inside = self.slot >= 0 and self._address <= address < self._address + self._end
        return address - self._address if inside else -1

    def copy(self, address: int, size: int) -> int:
        begin = self.allocate(size)
        if begin >= 0:
            ctypes.memmove(self._address + begin, address, size)
        return begin

    def finish(self) -> int:
        """Ends the batch. Returns its slot, or -1 if none of its bytes lie in one."""
        slot, used = self.slot, self.used
        self.slot, self.used, self._buffer = -1, False, None
        if slot >= 0 and not used:
            self._region.release(self._worker, slot)
            return -1
        return slot


class _Piece:
    """The bytes of one storage, in the slot or in the message. There is one object for each
    storage, so that views of one storage still share it on arrival.
    """

    def __init__(self, offset: int, size: int, data: bytes | None) -> None:
        self._how = (offset, size) if data is None else (data,)

    def __reduce__(self) -> Any:
        return (_in_slot if len(self._how) == 2 else _in_message), self._how


class _Pickler(ForkingPickler):
    def __init__(self, file: io.BytesIO, slab: Slab | None) -> None:
        super().__init__(file)
        self._slab = slab
        # By storage, not by address: two storages over one NumPy array share an address.
        self._pieces: dict[int, _Piece] = {}

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor:
            return self._tensor(value)
        return NotImplemented

    def _tensor(self, tensor: torch.Tensor) -> Any:
        if (
            tensor.layout is not torch.strided
            or tensor.device.type != "cpu"
            or tensor.requires_grad
            or tensor.is_quantized
            or tensor.is_neg()
            or tensor.is_conj()
        ):
            return NotImplemented
        storage = storage_of(tensor)
        size = storage.nbytes()
        if (
            not 0 < size <= 2 * tensor.numel() * tensor.element_size() + SMALL
            or storage.is_shared()
        ):
            return NotImplemented
        piece = self._pieces.get(storage._cdata)
        if piece is None:
            piece = self._piece(storage.data_ptr(), size)
            if piece is None:
                return NotImplemented
            self._pieces[storage._cdata] = piece
        return _tensor, (
            piece,
            tensor.dtype,
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
        )

    def _piece(self, address: int, size: int) -> _Piece | None:
        slab = self._slab
        offset = slab.offset_of(address) if slab is not None else -1
        if offset < 0 and size >= SMALL and slab is not None:
            offset = slab.copy(address, size)
        data = None
        if offset >= 0 and slab is not None:
            slab.used = True
        else:
            if size >= SMALL and _fits_shared_memory(size):
                return None
            data = ctypes.string_at(address, size)
        return _Piece(offset, size, data)


def dumps(value: Any, slab: Slab | None = None) -> bytes:
    file = io.BytesIO()
    _Pickler(file, slab).dump(value)
    return file.getvalue()


def loads(data: Any, slot: Any = None) -> Any:
    """Reads what `dumps` wrote. `slot` is the buffer with the bytes; its tensors keep it alive."""
    _arriving.slot = slot
    try:
        return ForkingPickler.loads(data)
    finally:
        _arriving.slot = None


_arriving = threading.local()


def _in_slot(offset: int, size: int) -> Any:
    return storage_of(
        torch.frombuffer(_arriving.slot, dtype=torch.uint8, count=size, offset=offset)
    )


def _in_message(data: bytes) -> Any:
    return storage_of(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def _tensor(
    storage: Any, dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    return torch.empty((0,), dtype=dtype, device="cpu").set_(storage, offset, shape, stride)


def collate_into(slab: Slab) -> None:
    """Lets PyTorch's collate in this worker process make its shared tensors in the slot."""
    original = torch.UntypedStorage._new_shared
    worker_thread = threading.get_ident()

    def _new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        # Other threads of the dataset use PyTorch's memory, because the slot belongs to the batch
        # that this thread makes.
        if (
            torch.device(device).type == "cpu"
            and size > 0
            and threading.get_ident() == worker_thread
        ):
            storage = torch.UntypedStorage(size) if size < SMALL else slab.storage(size)
            if storage is None and not _fits_shared_memory(size):
                # Writing past the end of /dev/shm would be a bus error.
                storage = torch.UntypedStorage(size)
            if storage is not None:
                # PyTorch's own shared memory begins as zeros. Its collate overwrites all of it, so
                # only other callers need the zeros.
                if sys._getframe(2).f_globals.get("__name__") != "torch.utils.data._utils.collate":
                    ctypes.memset(storage.data_ptr(), 0, size)
                return storage
        return original(size, device=device)

    torch.UntypedStorage._new_shared = classmethod(_new_shared)
