# SPDX-License-Identifier: Apache-2.0
"""A communicator of libpaceline.so for torch tensors on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, overload

import torch

from paceline._core.memory import mark_written
from paceline.comm import _native
from paceline.comm._handle import HEARTBEAT_TIMEOUT, TIMEOUT, Handle, of_all_ranks, refuse
from paceline.comm._members import Members, TorchStore

Tensor = torch.Tensor

DTYPES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.int32: 4,
    torch.int64: 5,
}
CODECS = {"FP16": 1, "BF16": 2, "Int8": 3, "TopK": 4, "OneBit": 5, "DGC": 6}


def refuse_to_join(group: Any, why: str) -> None:
    """For a rank that cannot make the Communicator which the others make next in this group,
    without a name. The others raise CommError at once, with this rank and the reason."""
    members = Members(group)
    refuse(TorchStore(members.store), members.next_name("comm"), members.rank, why)


class Work:
    """A collective that runs in the background, as torch.distributed's Work. Its communicator holds
    the tensors alive until `wait`, or until its own end.
    """

    def __init__(self, communicator: Communicator, tensor: Tensor, ticket: int) -> None:
        self._communicator = communicator
        self._ticket = ticket
        self._tensor = tensor

    def wait(self) -> bool:
        """Blocks until the collective has ended. True; raises CommError where it failed."""
        self._communicator._check(
            _native.functions().wait(self._communicator._open(), self._ticket)
        )
        self._communicator._let_go(self._ticket)
        return True

    def is_completed(self) -> bool:
        """Whether the collective has ended, well or not. Does not block."""
        completed = ctypes.c_uint32()
        self._communicator._check(
            _native.functions().is_completed(
                self._communicator._open(), self._ticket, ctypes.byref(completed)
            )
        )
        return completed.value != 0

    def result(self) -> list[Tensor]:
        """The tensor of the collective, in a list."""
        return [self._tensor]


class Communicator(Handle):
    """Collectives of CPU tensors over the ranks of `group` (None: of all). All of them make one, in
    the same order.

    plan                what `plan()` printed, to do all-reduces the same way again
    timeout             for each collective to end while all ranks live
    heartbeat_timeout   a rank that says nothing for so long counts as lost

    All ranks make the same calls in the same order. A call that refuses its arguments ends the
    communicator on all ranks, except with `async_op` and from one rank to another. Tensors are
    contiguous and on the CPU.
    """

    def __init__(
        self,
        group: Any = None,
        *,
        name: str = "",
        plan: str = "",
        timeout: timedelta = TIMEOUT,
        heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT,
        flows: int = 0,
        host: str = "",
    ) -> None:
        members = Members(group)
        name = name or members.next_name("comm")
        store = TorchStore(members.store)
        # The tensors of sums under way, by ticket, in case the program no longer holds them.
        self._held: dict[int, tuple[Tensor, ...]] = {}
        super().__init__(
            store,
            members.rank,
            members.ranks,
            name=name,
            plan=plan,
            timeout=timeout,
            heartbeat_timeout=heartbeat_timeout,
            flows=flows,
            host=host,
        )

    @overload
    def all_reduce(self, tensor: Tensor, *, async_op: Literal[False] = False) -> Tensor: ...

    @overload
    def all_reduce(self, tensor: Tensor, *, async_op: Literal[True]) -> Work: ...

    @of_all_ranks
    def all_reduce(self, tensor: Tensor, *, async_op: bool = False) -> Tensor | Work:
        """The sum over all ranks, in place. Returns the tensor. With `async_op` it returns a Work
        at once, and the tensor is the sum when `wait` has returned.
        """
        handle, dtype = self._open(), _dtype(tensor, "tensor")
        library = _native.functions()
        data = (handle, tensor.data_ptr(), tensor.numel(), dtype)
        if async_op:
            ticket = ctypes.c_uint64()
            self._check(library.all_reduce_start(*data, ctypes.byref(ticket)))
            self._held[ticket.value] = (tensor,)
        else:
            self._check(library.all_reduce(*data))
        mark_written([tensor])
        return Work(self, tensor, ticket.value) if async_op else tensor

    def residual_count(self, count: int) -> int:
        """How many values `all_reduce_coded` keeps here of what an array of `count` loses."""
        found = ctypes.c_uint64()
        self._check(_native.functions().residual_count(self._open(), count, ctypes.byref(found)))
        return found.value

    def all_reduce_coded(self, tensor: Tensor, rest: Tensor, codec: int, keep: int = 0) -> Work:
        """`all_reduce` of float32 in fewer bytes between hosts, by one of CODECS; `keep`: of a
        million values, with TopK. What is lost is added to the next: in `rest`, zeros at first, and
        in use as `tensor` is.
        """
        handle = self._open()
        if _dtype(tensor, "tensor") or _dtype(rest, "rest"):
            raise ValueError(f"paceline.comm: tensor and rest must be of {torch.float32}")
        ticket = ctypes.c_uint64()
        started = _native.functions().all_reduce_coded
        data = (
            handle,
            tensor.data_ptr(),
            tensor.numel(),
            codec,
            keep,
            rest.data_ptr(),
            rest.numel(),
        )
        self._check(started(*data, ctypes.byref(ticket)))
        self._held[ticket.value] = (tensor, rest)
        mark_written([tensor])
        return Work(self, tensor, ticket.value)

    @of_all_ranks
    def reduce_scatter(self, output: Tensor, input: Tensor) -> Tensor:
        """Sums this rank's pieces of `input`, which has one of `output`'s size for each rank."""
        dtype = self._pieces("input", input, "output", output)
        data = (input.data_ptr(), output.data_ptr(), output.numel(), dtype)
        self._check(_native.functions().reduce_scatter(self._open(), *data))
        mark_written([output])
        return output

    @of_all_ranks
    def all_gather(self, output: Tensor, input: Tensor) -> Tensor:
        """The `input` of all ranks, one behind the other."""
        dtype = self._pieces("output", output, "input", input)
        self._check(
            _native.functions().all_gather(
                self._open(), input.data_ptr(), output.data_ptr(), input.numel(), dtype
            )
        )
        mark_written([output])
        return output

    @of_all_ranks
    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """What rank `src` of this communicator has."""
        root = self._root("src", src)
        dtype = _dtype(tensor, "tensor")
        self._check(
            _native.functions().broadcast(
                self._open(), tensor.data_ptr(), tensor.numel(), dtype, root
            )
        )
        mark_written([tensor])
        return tensor

    @of_all_ranks
    def reduce(self, tensor: Tensor, dst: int = 0) -> Tensor:
        """The sum over all ranks, in place at rank `dst` of this communicator; the tensors of
        others stay as they are.
        """
        root = self._root("dst", dst)
        dtype = _dtype(tensor, "tensor")
        self._check(
            _native.functions().reduce(self._open(), tensor.data_ptr(), tensor.numel(), dtype, root)
        )
        if self.rank == root:
            mark_written([tensor])
        return tensor

    @of_all_ranks
    def all_to_all(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
    ) -> Tensor:
        """Piece r of `input` goes to rank r, piece r of `output` comes from it: as many equal ones
        as there are ranks, or `counts` elements each. They share no memory.
        """
        dtype = _dtype(output, "output")
        if _dtype(input, "input") != dtype:
            raise ValueError(
                f"paceline.comm: input is of {input.dtype} and output of {output.dtype}"
            )
        data = (input.data_ptr(), output.data_ptr())
        if output_split_sizes is None and input_split_sizes is None:
            count, more = divmod(input.numel(), self.ranks)
            if more or output.numel() != input.numel():
                raise ValueError(
                    f"paceline.comm: input has {input.numel()} elements and output"
                    f" {output.numel()}: they must have as many, a multiple of {self.ranks}; or"
                    " pass output_split_sizes and input_split_sizes"
                )
            self._check(_native.functions().all_to_all(self._open(), *data, count, dtype))
        else:
            sent = self._counts("input", input, input_split_sizes)
            received = self._counts("output", output, output_split_sizes)
            if sent[self.rank] != received[self.rank]:
                raise ValueError(
                    f"paceline.comm: rank {self.rank} sends itself {sent[self.rank]} elements and"
                    f" expects {received[self.rank]}"
                )
            self._check(
                _native.functions().all_to_all_v(
                    self._open(), data[0], sent, data[1], received, dtype
                )
            )
        mark_written([output])
        return output

    def send(self, tensor: Tensor, dst: int) -> None:
        """To rank `dst`, which calls `recv`, or `exchange`, with a tensor of as many elements and
        of this dtype.
        """
        handle, dtype = self._open(), _dtype(tensor, "tensor")
        self._check(
            _native.functions().send(
                handle, tensor.data_ptr(), tensor.numel(), dtype, self._peer("dst", dst)
            )
        )

    def recv(self, tensor: Tensor, src: int) -> Tensor:
        """What rank `src` sends."""
        handle, dtype, peer = self._open(), _dtype(tensor, "tensor"), self._peer("src", src)
        self._check(
            _native.functions().receive(handle, tensor.data_ptr(), tensor.numel(), dtype, peer)
        )
        mark_written([tensor])
        return tensor

    def exchange(self, output: Tensor, input: Tensor, dst: int, src: int) -> Tensor:
        """`input` to one rank and `output` from one, the same or another, at once."""
        handle, dtype = self._open(), _dtype(output, "output")
        if _dtype(input, "input") != dtype:
            raise ValueError(
                f"paceline.comm: input is of {input.dtype} and output of {output.dtype}"
            )
        if dst == src == self.rank and output.numel() == input.numel():
            output.copy_(input)
            return output
        sent = (input.data_ptr(), input.numel(), self._peer("dst", dst))
        received = (output.data_ptr(), output.numel(), self._peer("src", src))
        self._check(_native.functions().exchange(handle, *sent, *received, dtype))
        mark_written([output])
        return output

    @of_all_ranks
    def all_reduce_sparse(self, indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of arrays of which each rank has some rows: `indices` (int64) says which, in any
        order, `values` has a row for each. Returns the rows that any rank has, by ascending index,
        the same bits on all ranks.
        """
        handle, dtype = self._open(), _dtype(values, "values")
        if _dtype(indices, "indices") != DTYPES[torch.int64] or indices.dim() != 1:
            raise ValueError(f"paceline.comm: indices must be of one dimension and {torch.int64}")
        count, shape = indices.numel(), values.shape[1:]
        if values.dim() == 0 or values.shape[0] != count or shape.numel() == 0:
            raise ValueError(
                f"paceline.comm: values is of {tuple(values.shape)}: it must have a row for each of"
                f" {count} indices"
            )
        found = ctypes.c_uint64()
        library = _native.functions()
        data = (indices.data_ptr(), values.data_ptr(), count, shape.numel(), dtype)
        self._check(library.all_reduce_sparse(handle, *data, ctypes.byref(found)))
        all_indices = torch.empty(found.value, dtype=torch.int64, device="cpu")
        sums = torch.empty((found.value, *shape), dtype=values.dtype, device="cpu")
        self._check(
            library.sparse_result(handle, all_indices.data_ptr(), sums.data_ptr(), found.value)
        )
        return all_indices, sums

    def close(self) -> None:
        super().close()
        self._held.clear()  # nothing writes into them any more

    # -- within
    # ------------------------------------------------------------

    def _let_go(self, ticket: int) -> None:
        self._held.pop(ticket, None)

    def _counts(
        self, name: str, tensor: Tensor, counts: Sequence[int] | None
    ) -> ctypes.Array[ctypes.c_uint64]:
        given = list(counts or ())
        if len(given) != self.ranks or min(given) < 0 or sum(given) != tensor.numel():
            raise ValueError(
                f"paceline.comm: {name}_split_sizes is {given}: it must say for each of"
                f" {self.ranks} ranks how many of the {tensor.numel()} elements of {name} are its"
            )
        return (ctypes.c_uint64 * self.ranks)(*given)

    def _pieces(self, name: str, whole: Tensor, part_name: str, part: Tensor) -> int:
        if whole.numel() != part.numel() * self.ranks or whole.dtype is not part.dtype:
            raise ValueError(
                f"paceline.comm: {name} has {whole.numel()} elements of {whole.dtype}: it must have"
                f" {self.ranks} times the {part.numel()} of {part_name}, of {part.dtype}"
            )
        _dtype(whole, name)
        return _dtype(part, part_name)


def _dtype(tensor: Tensor, name: str) -> int:
    if tensor.device.type != "cpu":
        raise ValueError(
            f"paceline.comm: {name} is on {tensor.device}: it must be on the CPU; on GPUs use"
            " torch.distributed with NCCL"
        )
    if tensor.layout is not torch.strided or not tensor.is_contiguous():
        raise ValueError(f"paceline.comm: {name} must be contiguous: pass {name}.contiguous()")
    found = DTYPES.get(tensor.dtype)
    if found is None:
        raise ValueError(
            f"paceline.comm: {name} is of {tensor.dtype}: it must be one of"
            f" {', '.join(map(str, DTYPES))}"
        )
    return found
