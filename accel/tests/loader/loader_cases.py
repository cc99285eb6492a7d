# SPDX-License-Identifier: Apache-2.0
"""Loaders of the parity tests. Each case notes every batch and the random state."""

from __future__ import annotations

import gc
import random
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    _utils,
    get_worker_info,
)

Case = Callable[[Any], list[Any]]
CASES: dict[str, Case] = {}
NEW = int(torch.__version__.split(".")[0]) >= 2
LARGE = 5000  # floats: a tensor of them goes into a slab


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def seed() -> None:
    torch.manual_seed(5)
    random.seed(6)
    np.random.seed(7)


def state() -> list[Any]:
    return [torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()]


class Rows(Dataset):
    """Each sample tells its index, and what the worker's random numbers are at that point."""

    counts = True  # how many samples it has made, which is then a part of each

    def __init__(self, size: int = 26, large: bool = False) -> None:
        self.size, self.large = size, large
        self.calls = 0
        self.scale = 1.0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        self.calls += self.counts
        info = get_worker_info()
        row = torch.full((LARGE if self.large else 3,), float(index) * self.scale)
        luck = torch.rand(2), random.random(), float(np.random.rand())
        return (
            row,
            int(index),
            luck,
            self.calls,
            (info.id, info.num_workers, info.seed),
            torch.initial_seed(),
        )


class Stream(IterableDataset):
    """Shards itself over the workers, unevenly, and takes its random numbers from its worker."""

    def __init__(self, size: int = 23, length: int | None = None, large: bool = False) -> None:
        self.size, self.length, self.large = size, length, large
        self.passes = 0

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError
        return self.length

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        info = get_worker_info()
        for value in range(info.id, self.size - 4 * info.id, info.num_workers):
            row = torch.full((LARGE,), float(value)) if self.large else torch.tensor(value)
            yield row, torch.rand(1), random.random(), self.passes


def passes(loader: Any, epochs: int = 3, between: Callable[[int], None] | None = None) -> list[Any]:
    seen: list[Any] = []
    for epoch in range(epochs):
        if between is not None:
            between(epoch)
        for number, batch in enumerate(loader):
            seen.append(batch)
            if number == 1:
                seen.append(torch.rand(1))  # the program draws as well
        seen.append(state())
    return seen


def both(kind: Any, dataset: Callable[[], Any], epochs: int = 3, **options: Any) -> list[Any]:
    """With workers of one epoch, and with persistent ones."""
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        # Each pass without persistent workers is two forks of all of PyTorch.
        loader = kind(dataset(), num_workers=2, persistent_workers=persistent, **options)
        seen += passes(loader, epochs if persistent else epochs - 1)
    return seen


@case
def shuffled(kind: Any) -> list[Any]:
    return both(kind, Rows, batch_size=4, shuffle=True)


@case
def shuffled_large_with_generator(kind: Any) -> list[Any]:
    return both(
        kind,
        lambda: Rows(large=True),
        batch_size=4,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(3),
    )


@case
def sequential_more_workers_than_batches(kind: Any) -> list[Any]:
    seed()
    return passes(
        kind(
            Rows(5, large=True),
            batch_size=3,
            num_workers=3,
            prefetch_factor=1,
            persistent_workers=True,
        )
    )


@case
def one_worker_prefetching_far(kind: Any) -> list[Any]:
    seed()
    return passes(kind(Rows(40), batch_size=2, shuffle=True, num_workers=1, prefetch_factor=7))


@case
def no_samples(kind: Any) -> list[Any]:
    return both(kind, lambda: Rows(0), batch_size=2)


@case
def drawn_with_replacement(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for generator in (None, torch.Generator().manual_seed(1)):
        sampler = RandomSampler(Rows(70), replacement=True, num_samples=75, generator=generator)
        seen += both(kind, lambda: Rows(70), sampler=sampler, batch_size=5)
    return seen


@case
def other_samplers(kind: Any) -> list[Any]:
    subset = SubsetRandomSampler(range(3, 20, 2))
    weighted = WeightedRandomSampler(
        [0.1, 0.5, 0.4], 11, generator=torch.Generator().manual_seed(2)
    )
    more = RandomSampler(Rows(9), num_samples=20)
    return [both(kind, Rows, sampler=sampler, batch_size=3) for sampler in (subset, weighted, more)]


@case
def distributed_sampler(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        for told in (True, False):
            seed()
            sampler: Any = DistributedSampler(Rows(), num_replicas=2, rank=1, drop_last=told)
            loader = kind(
                Rows(), sampler=sampler, batch_size=3, num_workers=2, persistent_workers=persistent
            )
            seen += passes(loader, 3, sampler.set_epoch if told else None)
    return seen


class _Lucky:
    """A sampler of the program's own: draws from Python's generator, and yields tensors."""

    def __init__(self, batches: bool) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        for _ in range(7):
            numbers = torch.tensor([random.randrange(26) for _ in range(3)])
            yield numbers if self.batches else numbers[0]

    def __len__(self) -> int:
        return 7


@case
def samplers_of_the_program(kind: Any) -> list[Any]:
    return both(kind, Rows, batch_sampler=_Lucky(True)) + both(
        kind, Rows, sampler=_Lucky(False), batch_size=2
    )


@case
def batch_size_none(kind: Any) -> list[Any]:
    return both(kind, lambda: Rows(large=True), batch_size=None, shuffle=True)


@case
def iterable(kind: Any) -> list[Any]:
    seen = both(kind, Stream, batch_size=3)
    seen += both(kind, lambda: Stream(large=True), batch_size=4, drop_last=True)
    return seen + both(kind, Stream, batch_size=None)


@case
def iterable_longer_than_it_says(kind: Any) -> list[Any]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = kind(Stream(length=6), batch_size=3, num_workers=2)
        seen = [len(loader), *passes(loader, 1)]
    return [*seen, sum("Length of IterableDataset" in str(warning.message) for warning in said)]


@case
def iterable_of_the_whole_on_every_worker(kind: Any) -> list[Any]:
    class Same(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(get_worker_info().id + 3))

    return both(kind, Same, batch_size=2)


Pair = namedtuple("Pair", "left right")


class Held:
    """A batch of the program's own class."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = torch.stack(rows)
        self.again = self.rows
        self.part = self.rows[1:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and alike(vars(self), vars(other))


class Things(Dataset):
    """Samples with everything a default collate takes."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        row = torch.arange(self.width, dtype=torch.float32) + index
        return {
            "pair": Pair(row, [row.double(), (row.bool(), str(index))]),
            "numpy": row.numpy() * 2,
            "scalars": (index, index / 3, row[0], np.float64(index), np.bool_(index % 2)),
            "half": row.to(torch.bfloat16).view(-1, 2),
            "complex": torch.complex(row, -row),
            "empty": row[:0],
            "bytes": b"x" * index,
        }


@case
def nested_batches(kind: Any) -> list[Any]:
    return [both(kind, partial(Things, width), batch_size=3) for width in (4, 4000)]


@case
def batches_of_other_makes(kind: Any) -> list[Any]:
    def collate(rows: list[Any]) -> Any:
        row = torch.stack(rows)
        whole = torch.arange(40_000.0)
        array = np.arange(40_000)
        return {
            "held": Held(rows),
            "transposed": row.t(),
            "expanded": row[:1].expand(7, -1),
            "views": (whole[:10], whole[5:15]),
            "of one array": tuple(torch.from_numpy(array[:end]) for end in (30, 9000, 40_000)),
            "close": (whole[:30_000], whole[10_000:]),
            "twice": (row, row),
            "numpy": np.arange(60_000),
            "objects": np.array([None, "a"], dtype=object),
            "sparse": (
                row.to_sparse() if NEW else None
            ),  # PyTorch 1.13 cannot send it, and waits forever
            "leaf": torch.ones(3, requires_grad=True),
            "parameter": torch.nn.Parameter(row.clone()),
            "conjugated": torch.complex(row, row).conj(),
            "shared": torch.ones(LARGE).share_memory_(),
            "negative strides": np.arange(9)[::-1],
            "odd": torch.arange(LARGE, dtype=torch.int16)[3:].view(torch.uint8),
            "text": "ü" * 50_000,
            "nothing": None,
        }

    rows = torch.arange(12 * 900.0).view(12, 900)
    seen = both(kind, lambda: rows, batch_size=4, collate_fn=collate)
    for batch in seen:
        if isinstance(batch, dict):  # what shares memory shares it still
            for name in ("views", "of one array", "close", "twice"):
                batch[name][0].add_(1)
            batch["held"].part.mul_(2)
    return seen


@case
def memory_asked_for_as_torch_asks(kind: Any) -> list[Any]:
    """Collates of programs that were copied from PyTorch's, and write only part of what they have
    got, as it is zero.
    """

    def collate(rows: list[Any]) -> Any:
        storage = rows[0].storage() if not NEW else rows[0]._typed_storage()
        made = [rows[0].new(storage._new_shared(count)) for count in (7, 3 * LARGE)]
        for out in made:
            out.resize_(len(out))
            out[:2] = rows[0][0] + 1
        return *made, torch.stack(rows), [torch.utils.data.default_collate(rows)]

    return both(kind, lambda: torch.ones(24, LARGE), batch_size=3, collate_fn=collate)


@case
def collated_in_threads(kind: Any) -> list[Any]:
    """A dataset that collates the next sample in a thread of the worker."""

    class Ahead(Rows):
        def __init__(self) -> None:
            super().__init__(12)
            self.pool: Any = None
            self.next: Any = None

        def collated(self, index: int) -> Any:
            return torch.utils.data.default_collate(
                [torch.full((LARGE,), float(index + i)) for i in range(3)]
            )

        def __getitem__(self, index: int) -> Any:
            if self.pool is None:
                self.pool = ThreadPoolExecutor(1)
            ready = self.next.result() if self.next is not None else self.collated(-1)
            self.next = self.pool.submit(self.collated, index)
            self.next.exception()  # it is made while this batch is
            return ready

    loader = kind(Ahead(), batch_size=None, num_workers=1, persistent_workers=True)
    return [batch.clone() for _ in range(3) for batch in loader]


@case
def left_early(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        loader = kind(
            Rows(large=True),
            batch_size=2,
            shuffle=True,
            num_workers=2,
            persistent_workers=persistent,
        )
        for epoch in range(4):
            for number, batch in enumerate(loader):
                seen.append(batch)
                if number == (1, 12, 9, 0)[epoch]:
                    break
            seen.append(state())
        stream = kind(Stream(), batch_size=2, num_workers=2, persistent_workers=persistent)
        for _ in range(3):
            seen.append(next(iter(stream)))
        seen += passes(stream, 2)
    return seen


@case
def two_at_once(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        loader = kind(
            Rows(12), batch_size=2, shuffle=True, num_workers=2, persistent_workers=persistent
        )
        for _ in range(2):
            seen += zip(loader, loader)
        for outer, batch in enumerate(loader):
            seen.append(batch)
            seen += list(loader)
            if outer == 1:
                break
        seen.append(state())
    return seen


@case
def validation_between(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        options = {"num_workers": 2, "persistent_workers": persistent}
        training = kind(Rows(20, large=True), batch_size=4, shuffle=True, **options)
        validation = kind(Rows(9), batch_size=4, **options)
        small = kind(torch.arange(6), batch_size=2)
        for _ in range(3):
            seen += list(training)
            with torch.no_grad():
                seen += list(validation)
            seen += [*small, state()]
    return seen


@case
def dropout_between(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        loader = kind(
            Rows(20), batch_size=4, shuffle=True, num_workers=2, persistent_workers=persistent
        )
        for _ in range(3):
            for batch in loader:
                seen.append((batch, torch.nn.functional.dropout(batch[0])))
    return seen


CHANGED = [1.0]


class Outside(Rows):
    def __getitem__(self, index: Any) -> Any:
        return CHANGED[0], super().__getitem__(index)


@case
def a_dataset_changed_between(kind: Any) -> list[Any]:
    seen: list[Any] = []
    for persistent in (False, True):
        seed()
        rows, values = Outside(20), torch.zeros(20, LARGE)
        array = np.zeros(20)
        loaders = [
            kind(data, batch_size=4, num_workers=2, persistent_workers=persistent)
            for data in (rows, values, array)
        ]
        for epoch in range(4):
            for loader in loaders:
                seen += list(loader)
            if epoch != 1:
                rows.scale += 1
                CHANGED[0] += 1
                values.add_(1)
                array += 1
    return seen


@case
def workers_set_up_by_the_program(kind: Any) -> list[Any]:
    def prepare(worker: int) -> None:
        get_worker_info().dataset.scale = 10.0 * (worker + 1)
        random.seed(worker)

    return both(kind, Rows, batch_size=4, shuffle=True, worker_init_fn=prepare, timeout=30)


class Fails(Rows):
    def __getitem__(self, index: Any) -> Any:
        if int(index) == 9:
            raise KeyError("sample nine")
        return super().__getitem__(index)


@case
def exceptions(kind: Any) -> list[Any]:
    seen: list[Any] = []

    def broken(worker: int) -> None:
        raise OSError(f"worker {worker} cannot")

    # Of 5 s, which PyTorch waits for each worker that has failed.
    with mock.patch.object(_utils, "MP_STATUS_CHECK_INTERVAL", 0.5):
        collect_failures(kind, broken, seen)
        # the iterators lie in the cycles of their exceptions: elsewhere it would be the 5 s
        gc.collect()
    return seen


def collect_failures(kind: Any, broken: Callable[[int], None], seen: list[Any]) -> None:
    for options in ({}, {"worker_init_fn": broken}):
        for persistent in (False, True):
            seed()
            loader = kind(
                Fails(), batch_size=4, num_workers=2, persistent_workers=persistent, **options
            )
            for _ in range(2):
                iterator = iter(loader)
                while True:
                    try:
                        seen.append(next(iterator))
                    except StopIteration:
                        break
                    except Exception as error:  # PyTorch goes on after one
                        text = str(error)
                        assert "Traceback" in text and "DataLoader worker process" in text
                        seen.append((type(error), "sample nine" in text, "worker 0 cannot" in text))


@case
def resumed(kind: Any) -> list[Any]:
    """From a checkpoint of the generator's state, in the middle of an epoch."""
    seed()
    loader = kind(Rows(), batch_size=4, shuffle=True, num_workers=2)
    before = torch.get_rng_state()
    whole = list(loader)
    torch.set_rng_state(before)
    rest = [batch for number, batch in enumerate(loader) if number >= 3]
    assert alike([batch[:2] for batch in whole[3:]], [batch[:2] for batch in rest])
    return [whole, rest, state()]


@case
def cached_batches(kind: Any) -> list[Any]:
    """A dataset that keeps what it has collated, and hands it out again."""
    from torch.utils.data import default_collate

    class Cached(Rows):
        kept: dict[int, Any] = {}

        def __getitem__(self, index: Any) -> Any:
            if index not in self.kept:
                self.kept[index] = default_collate(
                    [torch.full((LARGE,), float(index + i)) for i in range(3)]
                )
            return self.kept[index]

    seed()
    loader = kind(Cached(12), batch_size=None, num_workers=2, persistent_workers=True)
    # The copy is kept, so the memory of the batch goes back to the worker.
    return [batch.clone() for _ in range(3) for batch in loader]


def alike(left: Any, right: Any) -> bool:
    return not difference(left, right)


def difference(left: Any, right: Any) -> str:
    """Empty where both are equal to the bit and laid out alike; else where they are not."""
    if type(left) is not type(right):
        return f": {type(left)} and {type(right)}"
    if isinstance(left, torch.Tensor):
        for of in ("dtype", "shape", "requires_grad", "layout", "_version"):
            if getattr(left, of) != getattr(right, of):
                return f".{of}: {getattr(left, of)} and {getattr(right, of)}"
        if left.is_pinned() != right.is_pinned():
            return f".is_pinned(): {left.is_pinned()} and {right.is_pinned()}"
        if left.layout is not torch.strided:
            return difference(left.to_dense(), right.to_dense())
        if left.stride() != right.stride() or left.storage_offset() != right.storage_offset():
            return f".stride(): {left.stride()} and {right.stride()}"
        return "" if torch.equal(left, right) else ": other values"
    if isinstance(left, np.ndarray):
        same = (
            left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
        )
        return "" if same else ": other values"
    if isinstance(left, dict):
        left, right = [*left, *left.values()], [*right, *right.values()]
    if isinstance(left, (list, tuple)):
        if len(left) != len(right):
            return f": {len(left)} and {len(right)} elements"
        found = ((number, difference(a, b)) for number, (a, b) in enumerate(zip(left, right)))
        return next((f"[{number}]{what}" for number, what in found if what), "")
    return "" if left == right else f": {left!r} and {right!r}"


TORCH = DataLoader
