# SPDX-License-Identifier: Apache-2.0
"""Collectives between the ranks of programs of any framework, or of none: on arrays in the CPU's
memory that speak DLPack (NumPy 1.23, JAX, PyTorch, Paddle, CuPy's host arrays), without a copy.

    with paceline.arrays.of_job() as communicator:                          # of the ranks that the
    launcher has started
        communicator.allreduce(gradients)                                   # in place, the same
        bits on all ranks

    store = paceline.arrays.TcpStore("10.0.0.1:29600", serve=rank == 0)     # of any; or
    FileStore("/shared/run-7")
    communicator = paceline.arrays.Communicator(store, rank, ranks)

What writes, writes in place: arrays that their framework takes for immutable (JAX's) are inputs,
and numpy.empty_like of them outputs. PyTorch's programs have paceline.comm. Ways, numerics and
failures are the same: see there.
"""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import Any

from paceline._dlpack import Array
from paceline.comm import _native
from paceline.comm._handle import SILENCE, TIMEOUT, Handle, Store, of_all_ranks
from paceline.comm._native import CommError
from paceline.comm._stores import FileStore, TcpStore

__all__ = ["CommError", "Communicator", "FileStore", "Store", "TcpStore", "of_job"]

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5}


class Communicator(Handle):
    """All `ranks` make one with the same `name` in the same store, each with its `rank` from 0 on;
    a name is used once. `plan`, `timeout`, `silence`, `flows` and `host` as for
    paceline.comm.Communicator.

    Calls are made by all ranks, the same, in the same order. ValueError where arguments make no
    sense, CommError where a rank is lost: both end the communicator, on all ranks, but for
    ValueError of `send` and `receive`.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        ranks: int,
        *,
        name: str = "main",
        plan: str = "",
        timeout: timedelta = TIMEOUT,
        silence: timedelta = SILENCE,
        flows: int = 0,
        host: str = "",
    ) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(
                f"paceline.arrays: rank is {rank}: it must be 0 to {ranks - 1}, of {ranks} ranks"
            )
        super().__init__(
            store,
            rank,
            ranks,
            name=name,
            plan=plan,
            timeout=timeout,
            silence=silence,
            flows=flows,
            host=host,
        )

    @of_all_ranks
    def allreduce(self, array: Any) -> Any:
        """The sum over all ranks, in place."""
        data, dtype = _written(array, "array")
        self._check(_native.functions().allreduce(self._open(), data.pointer, data.count, dtype))
        return array

    @of_all_ranks
    def broadcast(self, array: Any, root: int = 0) -> Any:
        """What rank `root` has, in place."""
        data, dtype = _written(array, "array")
        self._check(
            _native.functions().broadcast(
                self._open(), data.pointer, data.count, dtype, self._root(root)
            )
        )
        return array

    @of_all_ranks
    def reduce(self, array: Any, root: int = 0) -> Any:
        """Sum over all ranks, in place at rank `root`; other ranks' arrays stay as they are."""
        data, dtype = _written(array, "array")
        self._check(
            _native.functions().reduce(
                self._open(), data.pointer, data.count, dtype, self._root(root)
            )
        )
        return array

    @of_all_ranks
    def reduce_scatter(self, output: Any, input: Any) -> Any:
        """Sums this rank's pieces of `input`, which has one of `output`'s size for each rank."""
        (out, dtype), given = _written(output, "output"), _read(input, "input")
        self._fits(given, "input", out, "output")
        call = _native.functions().reduce_scatter
        self._check(call(self._open(), given.pointer, out.pointer, out.count, dtype))
        return output

    @of_all_ranks
    def allgather(self, output: Any, input: Any) -> Any:
        """The `input` of all ranks, one behind the other."""
        (out, dtype), given = _written(output, "output"), _read(input, "input")
        self._fits(out, "output", given, "input")
        self._check(
            _native.functions().allgather(
                self._open(), given.pointer, out.pointer, given.count, dtype
            )
        )
        return output

    @of_all_ranks
    def alltoall(self, output: Any, input: Any) -> Any:
        """Piece r of `input` goes to rank r, piece r of `output` comes from it: as many equal ones
        as there are ranks.
        """
        (out, dtype), given = _written(output, "output"), _read(input, "input")
        count, more = divmod(given.count, self.ranks)
        if more or given.count != out.count or given.dtype != out.dtype:
            raise ValueError(
                f"paceline.arrays: input has {given.count} elements of {given.dtype} and output"
                f" {out.count} of {out.dtype}: they must be of one type and have as many, a"
                f" multiple of {self.ranks}"
            )
        self._check(
            _native.functions().alltoall(self._open(), given.pointer, out.pointer, count, dtype)
        )
        return output

    def send(self, array: Any, to: int) -> None:
        """To one rank, which receives as many elements of this dtype."""
        data = _read(array, "array")
        self._check(
            _native.functions().send(
                self._open(), data.pointer, data.count, _dtype(data), self._peer("to", to)
            )
        )

    def receive(self, array: Any, source: int) -> Any:
        """What rank `source` sends, in place."""
        data, dtype = _written(array, "array")
        call = _native.functions().receive
        self._check(
            call(self._open(), data.pointer, data.count, dtype, self._peer("source", source))
        )
        return array

    def _fits(self, whole: Array, name: str, part: Array, part_name: str) -> None:
        if whole.count != part.count * self.ranks or whole.dtype != part.dtype:
            raise ValueError(
                f"paceline.arrays: {name} has {whole.count} elements of {whole.dtype}: it must have"
                f" {self.ranks} times the {part.count} of {part_name}, of {part.dtype}"
            )


def of_job(name: str = "main", **options: Any) -> Communicator:
    """The communicator of all ranks of a job, as its launcher tells them (RANK, WORLD_SIZE,
    MASTER_ADDR, MASTER_PORT). From the first call on rank 0 listens at MASTER_PORT, so this is for
    programs whose framework does not. `options` are a Communicator's.

    ValueError: a variable is missing, or is no number.
    """
    rank, ranks = _number("RANK"), _number("WORLD_SIZE")
    name = f"{name}/{os.environ.get('PACELINE_ATTEMPT', '0')}"
    return Communicator(_store_of_job(), rank, ranks, name=name, **options)


@functools.cache
def _store_of_job() -> TcpStore:
    """One for all communicators: who is done with the first may already say in it where the next
    one finds it.
    """
    return TcpStore(f"{_told('MASTER_ADDR')}:{_number('MASTER_PORT')}", serve=_number("RANK") == 0)


def _told(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise ValueError(
            f"paceline.arrays: {variable} is not set: run under Paceline's launcher, or make a"
            " Communicator with a store"
        )
    return value


def _number(variable: str) -> int:
    value = _told(variable)
    if not value.isdecimal():
        raise ValueError(f"paceline.arrays: {variable} is '{value}': it must be a number")
    return int(value)


def _read(array: Any, name: str) -> Array:
    data = Array(array, f"paceline.arrays: {name}", written=False)
    _dtype(data)
    return data


def _written(array: Any, name: str) -> tuple[Array, int]:
    data = Array(array, f"paceline.arrays: {name}", written=True)
    return data, _dtype(data)


def _dtype(data: Array) -> int:
    found = DTYPES.get(data.dtype)
    if found is None:
        raise ValueError(
            f"paceline.arrays: an array of {data.dtype}: it must be one of {', '.join(DTYPES)}"
        )
    return found
