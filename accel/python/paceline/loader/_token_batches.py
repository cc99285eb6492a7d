# SPDX-License-Identifier: Apache-2.0
"""Batches of samples of different lengths, planned so that all ranks need about equal time for a
step (paceline/batches.h).
"""

from __future__ import annotations

import array
import copy
import ctypes
import functools
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from paceline._core import library
from paceline.loader import _resume
from paceline.loader._ordered import SHUFFLE as SHUFFLE_ORDER
from paceline.loader._ordered import Order, Ordered

SHUFFLE, DROP_LAST, PADDED = 1, 2, 4
NO_LIMIT = (1 << 64) - 1
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class _Batching(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("max_tokens", ctypes.c_uint64),
        ("max_samples", ctypes.c_uint64),
        ("pool", ctypes.c_uint64),
        ("ranks", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _Functions:
    """The exported functions, typed. Raises OSError or AttributeError if the library lacks them."""

    def __init__(self) -> None:
        waiting = functools.partial(library.typed, library.opened())  # sorting takes its time
        memory, size = ctypes.c_void_p, ctypes.c_uint64
        order, number = ctypes.POINTER(Order), ctypes.POINTER(size)
        self.sequence = waiting("paceline_batches_sequence", number, size, order, memory)
        batching = ctypes.POINTER(_Batching)
        self.plan = waiting(
            "paceline_batches_plan", batching, memory, size, memory, size, memory, memory, number
        )


@functools.cache
def _functions() -> _Functions:
    return _Functions()


class _Plan:
    """The batches of all ranks in an epoch. Batch `step * ranks + rank` belongs to that rank."""

    def __init__(self, samples: torch.Tensor, ends: torch.Tensor, ranks: int) -> None:
        self.samples, self.ends, self.ranks = samples, ends, ranks
        self.steps = len(ends) // ranks

    def batch(self, step: int, rank: int) -> list[int]:
        number = step * self.ranks + rank
        begin = int(self.ends[number - 1]) if number else 0
        return self.samples[begin : int(self.ends[number])].tolist()


class TokenBatches(Sampler[Any]):
    """Yields one rank's batches of samples of different lengths, for a loader's `batch_sampler`.

    Samples of similar length share a batch. The batches that the ranks work on in one step have
    about equal cost. No batch costs more than `max_tokens`, and every rank has the same number of
    batches.

    The batches depend only on the arguments and the epoch, and on no random state. They are the
    same on every machine. An epoch takes 16 bytes of memory for each sample. It can be resumed at
    any batch, as with `ShardSampler`.

    Args:
        lengths: the length of each sample in tokens: a list of whole numbers, or a tensor of shape
            (samples,).
        max_tokens: greatest cost of a batch, in tokens.
        max_samples: greatest number of samples in a batch; None: any number.
        padded: True: a batch costs the length of its longest sample times the number of its
            samples. False: it costs the sum of the lengths, for samples that are packed without
            padding.
        shards: `TarShards` or `RecordShards` with these samples. Neighbouring shards then form a
            pool, so that a rank reads few shards at a time.
        shuffle, seed, rank, ranks, window: as for `ShardSampler`.
        pool: number of steps whose samples are sorted together. A larger pool makes the cost of
            batches more equal; a smaller one makes the order more random.
        drop_last: leaves out the samples of an incomplete last step. Otherwise samples from the
            begin of the epoch fill it.

    Raises:
        TypeError: `lengths` are not whole numbers.
        ValueError: a length is below 1 or above `max_tokens`, or another number is out of range.

    Example:
        >>> batches = paceline.loader.TokenBatches(
        ...     [5, 1, 4, 2], max_tokens=10, shuffle=False, rank=0, ranks=1
        ... )
        >>> len(batches), sorted(sum(batches, []))
        (2, [0, 1, 2, 3])
    """

    def __init__(
        self,
        lengths: Any,
        max_tokens: int,
        *,
        max_samples: int | None = None,
        padded: bool = True,
        shards: Ordered | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        window: int = 4,
        pool: int = 64,
        drop_last: bool = False,
    ) -> None:
        self._rank, self._ranks = _resume.rank_of(rank, ranks)
        for name, value, least, bits in (
            ("max_tokens", max_tokens, 1, 32),
            ("max_samples", 1 if max_samples is None else max_samples, 1, 63),
            ("seed", seed, 0, 64),
            ("window", window, 1, 32),
            ("pool", pool, 1, 32),
        ):
            _resume.check(name, value, least, bits)
        self._lengths = _checked(lengths, max_tokens)
        if shards is not None and len(shards) != len(self._lengths):
            raise ValueError(
                f"lengths has {len(self._lengths)} numbers, and the shards {len(shards)} samples:"
                " give one for each"
            )
        self._shards = shards
        self._order = Order(
            ctypes.sizeof(Order), SHUFFLE_ORDER if shuffle else 0, seed, 0, 0, 1, window, 0
        )
        flags = (
            (SHUFFLE if shuffle else 0)
            | (DROP_LAST if drop_last else 0)
            | (PADDED if padded else 0)
        )
        most = NO_LIMIT if max_samples is None else max_samples
        self._batching = _Batching(
            ctypes.sizeof(_Batching), flags, seed, 0, max_tokens, most, 0, 0, 0
        )
        self._pool = pool
        self._sum = int(self._lengths.sum())
        bytes_of = ctypes.c_char * (8 * len(self._lengths))
        self._crc = zlib.crc32(
            bytes_of.from_address(self._lengths.data_ptr()) if len(self._lengths) else b""
        )
        self._functions = _functions()
        self._first = 0
        # For each earlier number of ranks in this epoch: the batches that each rank had.
        self._past: list[list[int]] = []
        self._made: _Plan | None = None
        self._twin: TokenBatches | None = None  # a copy in the predicted epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return int(self._batching.epoch)

    def _in_epoch(self, epoch: int) -> TokenBatches:
        """Returns a copy whose next pass equals this sampler's after set_epoch(epoch). This sampler
        uses the copy's plan if that epoch comes.
        """
        twin = copy.copy(self)
        twin._order, twin._batching = (
            Order.from_buffer_copy(self._order),
            _Batching.from_buffer_copy(self._batching),
        )
        twin._twin = None
        twin.set_epoch(epoch)
        self._twin = twin
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass. A resumed epoch stays resumed if it is set again."""
        _resume.check("epoch", epoch, 0, 64)
        if epoch != self._batching.epoch:
            self._begin(epoch, [], 0)

    def _begin(self, epoch: int, past: list[list[int]], first: int) -> None:
        self._batching.epoch = self._order.epoch = epoch
        self._past, self._first, self._made = past, first, None

    def _sequence(self) -> torch.Tensor:
        count = len(self._lengths)
        sequence = torch.empty(count, dtype=torch.int64, device="cpu")
        if self._shards is not None:
            self._shards._places(
                self._order,
                0,
                count,
                ctypes.cast(sequence.data_ptr(), ctypes.POINTER(ctypes.c_uint64)),
            )
        else:
            one = (ctypes.c_uint64 * 1)(count)
            _check(self._functions.sequence(one, 1, ctypes.byref(self._order), sequence.data_ptr()))
        return sequence

    def _planned(self, sequence: torch.Tensor, ranks: int) -> _Plan:
        batching = _Batching.from_buffer_copy(self._batching)
        batching.ranks = ranks
        # The samples of average length that fit a batch. Without max_samples here, a pool would
        # hold more steps than asked.
        in_batch = min(
            batching.max_tokens * len(self._lengths) // max(self._sum, 1), batching.max_samples
        )
        batching.pool = max(1, min(self._pool * ranks * in_batch, 1 << 62))
        samples, ends = (
            torch.empty(len(sequence) + ranks, dtype=torch.int64, device="cpu") for _ in range(2)
        )
        batches, lengths = ctypes.c_uint64(), self._lengths
        given = (lengths.data_ptr(), len(lengths), sequence.data_ptr(), len(sequence))
        made = (samples.data_ptr(), ends.data_ptr(), ctypes.byref(batches))
        _check(self._functions.plan(ctypes.byref(batching), *given, *made))
        ends = ends[: batches.value].clone()
        return _Plan(samples[: int(ends[-1]) if len(ends) else 0], ends, ranks)

    def _plan(self) -> _Plan:
        twin, self._twin = self._twin, None
        if (
            self._made is None
            and twin is not None
            and (twin.epoch, twin._past) == (self.epoch, self._past)
        ):
            self._made = twin._made
        if self._made is None:
            sequence = self._sequence()
            for firsts in self._past:
                before = self._planned(sequence, len(firsts))
                had = torch.zeros(len(self._lengths), dtype=torch.bool, device="cpu")
                for rank, first in enumerate(firsts):
                    if first > before.steps:
                        raise ValueError(
                            f"the state's first is {first}: rank {rank} of {len(firsts)} had"
                            f" {before.steps} batches"
                        )
                    for step in range(first):
                        had[before.batch(step, rank)] = True
                sequence = sequence[~had[sequence]]
            self._made = self._planned(sequence, self._ranks)
        return self._made

    def __len__(self) -> int:
        return self._plan().steps - self._first

    def __iter__(self) -> Iterator[list[int]]:
        # The pass keeps the settings of this moment, even if they change while it runs.
        plan, rank, first = self._plan(), self._rank, self._first
        return (plan.batch(step, rank) for step in range(first, plan.steps))

    def balance(self) -> dict[str, float]:
        """Returns two fractions of this epoch, each from 0 to 1.

        `waiting` is the fraction of all ranks' time that they wait for the costliest batch of their
        step; it is 0 if all batches of a step cost the same. `padding` is the fraction of the
        tokens that are padding; it is 0 without `padded`.
        """
        plan = self._plan()
        if plan.steps == 0:
            return {"waiting": 0.0, "padding": 0.0}
        lengths = self._lengths[plan.samples].double()
        begins = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), plan.ends[:-1]])
        sums = torch.cat([torch.zeros(1, dtype=torch.float64, device="cpu"), lengths.cumsum(0)])
        tokens = sums[plan.ends] - sums[begins]
        costs = tokens
        if self._batching.flags & PADDED:
            costs = lengths[begins] * (plan.ends - begins)  # a batch's first sample is its longest
        dearest = costs.view(plan.steps, plan.ranks).amax(1).sum() * plan.ranks
        return {
            "waiting": float(1 - costs.sum() / dearest),
            "padding": float(1 - tokens.sum() / costs.sum()),
        }

    def _identity(self) -> dict[str, Any]:
        """Returns the values that a state must have to be loaded here."""
        own = {
            name: int(getattr(self._batching, name))
            for name in ("flags", "seed", "max_tokens", "max_samples")
        }
        shards = None if self._shards is None else self._shards.identity
        window = None if shards is None else int(self._order.window)
        return {**own, "pool": self._pool, "window": window, "shards": shards, "lengths": self._crc}

    def state_dict(self, delivered: int) -> dict[str, Any]:
        """Returns the state of this epoch, as plain Python values.

        Args:
            delivered: batches that the program has had in the running or last pass.

        Raises:
            ValueError: the pass has fewer batches than `delivered`.
        """
        place = (self._batching.epoch, self._rank, self._ranks)
        state = _resume.state(
            self._identity(), place, self._first, delivered, (len(self), "batches")
        )
        return {**state, "past": [list(each) for each in self._past]}

    def load_state_dict(self, state: _resume.States) -> None:
        """Lets the next pass begin where the state was taken, also with another number of ranks.

        Args:
            state: the state of any rank if all ranks had equally many batches, else the list of
                the states of all ranks.

        Raises:
            ValueError: a state is of other lengths, settings or passes; the text names the
                difference.
        """
        saved = _resume.read(state, self._identity(), ["past"])
        past = _past_of(saved.state.get("past"))
        before = (int(self._batching.epoch), self._past, self._first)
        again = len(saved.firsts) == self._ranks
        self._begin(
            saved.epoch,
            past if again else [*past, saved.firsts],
            saved.of(self._rank) if again else 0,
        )
        try:
            steps = self._plan().steps
            if self._first > steps:
                raise ValueError(
                    f"the state's first is {self._first}: this rank has {steps} batches"
                )
        except ValueError:
            self._begin(*before)
            raise


def _past_of(value: Any) -> list[list[int]]:
    """Reads the past of a state and checks every value, since the state is not trusted."""
    good = isinstance(value, (list, tuple)) and all(
        isinstance(each, (list, tuple)) and each for each in value
    )
    if not good or not all(
        isinstance(first, int) and first >= 0 for each in value for first in each
    ):
        raise ValueError(f"the state's past is {value!r}: it must be lists of numbers of batches")
    return [list(each) for each in value]


def _checked(lengths: Any, max_tokens: int) -> torch.Tensor:
    if isinstance(lengths, array.array):
        lengths = lengths.tolist()
    try:
        found = (
            lengths if isinstance(lengths, torch.Tensor) else torch.as_tensor(lengths, device="cpu")
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"lengths is {type(lengths).__qualname__}: it must be a list of whole numbers"
        ) from error
    if len(found.shape) == 1 and found.numel() == 0:
        found = found.to(torch.int64)
    if found.dtype not in _WHOLE or len(found.shape) != 1:
        raise TypeError(
            f"lengths has shape {tuple(found.shape)} of {found.dtype}: it must be a list of whole"
            " numbers, one for each sample"
        )
    found = found.detach().to(device="cpu", dtype=torch.int64).clone()
    for wrong, why in (
        (found < 1, "it must be at least 1: leave out empty samples"),
        (
            found > max_tokens,
            f"max_tokens is {max_tokens}: raise it, or cut or leave out that sample",
        ),
    ):
        if bool(wrong.any()):
            first, count = int(wrong.nonzero()[0]), int(wrong.sum())
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise ValueError(f"lengths[{first}] is {int(found[first])}{more}, and {why}")
    return found


def _check(code: int) -> None:
    if code != 0:
        raise MemoryError(f"no memory for the plan of an epoch's batches (code {code})")
