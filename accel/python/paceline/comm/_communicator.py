# SPDX-License-Identifier: Apache-2.0
"""A communicator of libpaceline.so for torch tensors on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, overload

import torch

from paceline._core.tensors import mark_written
from paceline.comm import _native
from paceline.comm._arguments import DTYPES, counts_of, dtype_of, dtype_of_pieces
from paceline.comm._handle import HEARTBEAT_TIMEOUT, TIMEOUT, Handle, of_all_ranks
from paceline.comm._members import Members, TorchStore
from paceline.comm._work import Work

Tensor = torch.Tensor


class Communicator(Handle):
    """Collectives of CPU tensors between the ranks of a process group.

    All ranks of the group construct it together, and then make the same calls in the same order.
    Tensors are contiguous, on the CPU, and of float32, float64, float16, bfloat16, int32 or int64.
    Numerics class Reordered: sums have another order than gloo's, and the same bits on all ranks.
    float16 and bfloat16 are added in float32.

    If a collective refuses its arguments, the communicator fails on all ranks, so that no rank
    waits for ever. `send`, `recv`, `exchange` and calls with `async_op=True` raise on this rank
    only. Close it with `close()` or a `with` block when all ranks are done.

    Args:
        group: the process group; None for all ranks of the job.
        name: a name that is the same on all ranks and used once; by default one is made.
        plan: the text that `plan()` returned, to do all-reduces the same way again. By default
            the way is hierarchical or flat, until `tune` measures.
        timeout: the longest time for one collective while all ranks live.
        heartbeat_timeout: a rank that is silent for this long counts as lost.
        flows: TCP connections to each peer host, 1 to 16; 0 uses the library's choice.
        host: ranks with the same text share memory. By default those of one machine and one
            network namespace do.

    Raises:
        CommError: if another rank cannot join, or does not come within `timeout`.
        ValueError: if an argument, or PACELINE_SOCKET_IFNAME, makes no sense.
        RuntimeError: without a process group.
        OSError: if libpaceline.so cannot be loaded.

    Example:
        >>> torch.distributed.init_process_group(  # torchrun starts more ranks than this one
        ...     "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
        ... )
        >>> with paceline.comm.Communicator() as communicator:
        ...     communicator.all_reduce(torch.ones(2))
        ...     work = communicator.all_reduce(torch.ones(3), async_op=True)
        ...     work.wait(), work.result()
        tensor([1., 1.])
        (True, [tensor([1., 1., 1.])])
        >>> torch.distributed.destroy_process_group()
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
        # Tensors of sums in flight, by ticket. The program may have dropped them.
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
        """Sums a tensor over all ranks, in place.

        Args:
            tensor: of any shape, with as many elements on all ranks.
            async_op: returns at once. The tensor is the sum once `Work.wait` has returned.

        Returns:
            The tensor, or a Work with `async_op=True`.

        Raises:
            CommError: if a rank is lost, late or calls something else.
            ValueError: if the tensor is not contiguous, not on the CPU, or of another dtype.
        """
        handle, dtype = self._open(), dtype_of(tensor, "tensor")
        library = _native.functions()
        data = (handle, tensor.data_ptr(), tensor.numel(), dtype)
        if async_op:
            ticket = ctypes.c_uint64()
            self._check(library.all_reduce_start(*data, ctypes.byref(ticket)))
            self._held[ticket.value] = (tensor,)
        else:
            self._check(library.all_reduce(*data))
        mark_written([tensor])
        return Work(self, tensor, ticket.value, self._held) if async_op else tensor

    def residual_count(self, count: int) -> int:
        """Returns how many float32 values the `residual` of `all_reduce_coded` has on this rank,
        for a tensor of `count` elements. DGC needs twice as many.
        """
        found = ctypes.c_uint64()
        self._check(_native.functions().residual_count(self._open(), count, ctypes.byref(found)))
        return found.value

    def all_reduce_coded(self, tensor: Tensor, residual: Tensor, codec: int, keep: int = 0) -> Work:
        """Begins a sum whose values are coded in fewer bytes between hosts (class Lossy). What the
        code loses stays in `residual`, and is added to the next sum.

        Args:
            tensor: float32, of any shape. It becomes the sum.
            residual: float32 with `residual_count(tensor.numel())` values, at first zeros. It
                belongs to this tensor and this rank, and is in use until `Work.wait` returns.
            codec: 1 FP16, 2 BF16, 3 Int8, 4 TopK, 5 OneBit, 6 DGC.
            keep: with TopK, how many of a million values are sent; with DGC, its momentum in
                thousandths is added from bit 20 on.

        Raises:
            ValueError: if a tensor is not float32, contiguous and on the CPU.
        """
        handle = self._open()
        if dtype_of(tensor, "tensor") or dtype_of(residual, "residual"):
            raise ValueError(f"paceline.comm: tensor and residual must be of {torch.float32}")
        ticket = ctypes.c_uint64()
        started = _native.functions().all_reduce_coded
        data = (
            handle,
            tensor.data_ptr(),
            tensor.numel(),
            codec,
            keep,
            residual.data_ptr(),
            residual.numel(),
        )
        self._check(started(*data, ctypes.byref(ticket)))
        self._held[ticket.value] = (tensor, residual)
        mark_written([tensor])
        return Work(self, tensor, ticket.value, self._held)

    @of_all_ranks
    def reduce_scatter(self, output: Tensor, input: Tensor) -> Tensor:
        """Sums `input` over all ranks, and gives each rank one piece of the sum. It returns
        `output`. It raises what `all_reduce` raises, and ValueError if the sizes or dtypes do not
        match.

        Args:
            output: gets this rank's piece.
            input: has as many elements as all ranks' outputs together. Piece r is for rank r.
        """
        dtype = dtype_of_pieces("input", input, "output", output, self.ranks)
        data = (input.data_ptr(), output.data_ptr(), output.numel(), dtype)
        self._check(_native.functions().reduce_scatter(self._open(), *data))
        mark_written([output])
        return output

    @of_all_ranks
    def all_gather(self, output: Tensor, input: Tensor) -> Tensor:
        """Gathers the `input` of all ranks. It returns `output`. It raises what `all_reduce`
        raises, and ValueError if the sizes or dtypes do not match.

        Args:
            output: has as many elements as all inputs together. Piece r is rank r's input.
            input: has as many elements on all ranks.
        """
        dtype = dtype_of_pieces("output", output, "input", input, self.ranks)
        self._check(
            _native.functions().all_gather(
                self._open(), input.data_ptr(), output.data_ptr(), input.numel(), dtype
            )
        )
        mark_written([output])
        return output

    @of_all_ranks
    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        """Copies the tensor of one rank to all ranks, in place. It returns `tensor`. It raises what
        `all_reduce` raises, and ValueError if there is no rank `src`.

        Args:
            tensor: of any shape, with as many elements on all ranks.
            src: the rank whose tensor is copied, as a number within this communicator.
        """
        root = self._root("src", src)
        dtype = dtype_of(tensor, "tensor")
        self._check(
            _native.functions().broadcast(
                self._open(), tensor.data_ptr(), tensor.numel(), dtype, root
            )
        )
        mark_written([tensor])
        return tensor

    @of_all_ranks
    def reduce(self, tensor: Tensor, dst: int = 0) -> Tensor:
        """Sums a tensor over all ranks, in place at one rank. The other ranks' tensors stay
        unchanged. It returns `tensor`. It raises what `all_reduce` raises, and ValueError if there
        is no rank `dst`.

        Args:
            tensor: of any shape, with as many elements on all ranks.
            dst: the rank that gets the sum, as a number within this communicator.
        """
        root = self._root("dst", dst)
        dtype = dtype_of(tensor, "tensor")
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
        """Sends piece r of `input` to rank r, and receives piece r of `output` from rank r. It
        returns `output`. It raises what `all_reduce` raises, and ValueError if the sizes or dtypes
        do not match.

        Args:
            output: must not share memory with `input`.
            input: of the dtype of `output`.
            output_split_sizes: elements of each piece of `output`, one number for each rank. By
                default all pieces of both tensors have the same size.
            input_split_sizes: the same of `input`. Give both or neither.
        """
        dtype = dtype_of(output, "output")
        if dtype_of(input, "input") != dtype:
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
            sent = counts_of("input", input, input_split_sizes, self.ranks)
            received = counts_of("output", output, output_split_sizes, self.ranks)
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
        """Sends a tensor to one rank, which calls `recv` or `exchange` with as many elements of
        this dtype. It may return before they have arrived.

        Args:
            tensor: of any shape.
            dst: another rank, as a number within this communicator.

        Raises:
            CommError: if rank `dst` is lost, late or expects something else.
            ValueError: if there is no rank `dst`.
        """
        handle, dtype = self._open(), dtype_of(tensor, "tensor")
        self._check(
            _native.functions().send(
                handle, tensor.data_ptr(), tensor.numel(), dtype, self._peer("dst", dst)
            )
        )

    def recv(self, tensor: Tensor, src: int) -> Tensor:
        """Receives what rank `src` sends by `send` or `exchange`.

        Args:
            tensor: gets the elements; as many as are sent, of the same dtype.
            src: another rank, as a number within this communicator.

        Returns:
            `tensor`.

        Raises:
            CommError: if rank `src` is lost, late or sends something else.
            ValueError: if there is no rank `src`.
        """
        handle, dtype, peer = self._open(), dtype_of(tensor, "tensor"), self._peer("src", src)
        self._check(
            _native.functions().receive(handle, tensor.data_ptr(), tensor.numel(), dtype, peer)
        )
        mark_written([tensor])
        return tensor

    def exchange(self, output: Tensor, input: Tensor, dst: int, src: int) -> Tensor:
        """Sends to one rank and receives from the same or another rank, both at once.

        Args:
            output: gets what rank `src` sends.
            input: goes to rank `dst`; of the dtype of `output`.
            dst: the rank that receives. If `dst` and `src` are this rank, `input` is copied.
            src: the rank that sends.

        Returns:
            `output`.

        Raises:
            CommError: if one of the two ranks is lost, late or calls something else.
            ValueError: if the dtypes differ, or a rank does not exist.
        """
        handle, dtype = self._open(), dtype_of(output, "output")
        if dtype_of(input, "input") != dtype:
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
        """Sums arrays of which each rank has only some rows, such as gradients of embeddings. It
        raises what `all_reduce` raises, and ValueError if the shapes or dtypes do not match.

        Args:
            indices: int64 of one dimension: the numbers of this rank's rows, in any order.
            values: one row for each index, all rows of the same shape.

        Returns:
            The indices of the rows that any rank has, ascending, and the sums of these rows. All
            ranks have the same bits.
        """
        handle, dtype = self._open(), dtype_of(values, "values")
        if dtype_of(indices, "indices") != DTYPES[torch.int64] or indices.dim() != 1:
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
