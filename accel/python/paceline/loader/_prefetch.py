# SPDX-License-Identifier: Apache-2.0
"""Prefetches the next epoch: decides which loaders allow it, predicts the order, and restores a
worker's random state.

The order is predicted from copies of the sampler and of the generators, so the program's own stay
unchanged. A prediction may be wrong, so the exchange compares it with PyTorch's real tasks. Samples
that are discarded must have changed nothing. That is proven for PyTorch's own datasets over private
memory. For other datasets the program states it (`prefetch_next_epoch=True`).

Use it from one thread. A loader that cannot be predicted or proven gives a reason, never an
exception.
"""

from __future__ import annotations

import copy
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import dataloader as torch_loader

from paceline.loader._sampler import ShardSampler
from paceline.loader._token_batches import TokenBatches
from paceline.loader._workers import hazards

MISSES_IN_A_ROW = 2
LONGEST = 4_000_000  # samples; drawing their order takes about 0.2 s
# The order of these samplers follows from their generator alone. Subclasses may differ.
DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
# The order of these samplers depends on the epoch that the program sets.
TOLD = (DistributedSampler, ShardSampler, TokenBatches)
SAMPLERS = (SequentialSampler, *TOLD, *DRAWING)


def why_not(loader: Any) -> str:
    """Returns an empty text if this loader's next epoch may be prefetched, else why not."""
    said = getattr(loader, "_paceline_prefetch_next_epoch", None)
    if said is False:
        return "prefetch_next_epoch=False"
    if not loader.persistent_workers:
        return "workers end with each epoch (persistent_workers=False)"
    if loader._dataset_kind != torch_loader._DatasetKind.Map:
        return "an iterable dataset goes on where it was"
    sampler = _sampler_of(loader)
    if type(sampler) not in SAMPLERS:
        return f"a sampler of class {type(sampler).__qualname__}, whose order cannot be predicted"
    generator = getattr(sampler, "generator", None)
    if generator is not None and generator.device.type != "cpu":
        return f"a generator on {generator.device.type}"
    drawn = (
        0
        if type(sampler) is ShardSampler
        else len(sampler._lengths if type(sampler) is TokenBatches else sampler)
    )
    if drawn > LONGEST:
        return f"an order of {drawn} samples takes too long to be drawn twice"
    if said:
        return ""
    method = hazards.start_method(loader)
    if method != "fork":
        # PyTorch moves a tensor to shared memory when it pickles it for a worker.
        return (
            f"workers that start by {method} see what the program writes to the dataset's tensors;"
            " pass prefetch_next_epoch=True if samples depend on their index alone"
        )
    if loader.worker_init_fn is not None:
        return (
            "worker_init_fn may do anything; pass prefetch_next_epoch=True if samples depend on"
            " their index alone"
        )
    defaults = (
        torch_loader._utils.collate.default_collate,
        torch_loader._utils.collate.default_convert,
    )
    if loader.collate_fn not in defaults:
        return (
            "collate_fn is the program's own; pass prefetch_next_epoch=True if samples depend on"
            " their index alone"
        )
    return _why_not_frozen(loader.dataset)


def _sampler_of(loader: Any) -> Any:
    outer = loader._index_sampler
    return outer.sampler if type(outer) is BatchSampler else outer


def _why_not_frozen(dataset: Any, depth: int = 4) -> str:
    """Returns an empty text if samples cannot change while the workers live, and making them
    changes nothing."""
    kind = type(dataset)
    if kind is torch.Tensor:
        return _why_not_private(dataset)
    if kind is range:
        return ""
    parts: Sequence[Any] | None = None
    if kind is TensorDataset:
        parts = dataset.tensors
    elif kind is Subset and type(dataset.indices) in (list, tuple, range):
        parts = [dataset.dataset]
    elif kind is ConcatDataset:
        parts = dataset.datasets
    if parts is None or depth == 0:
        return (
            f"{kind.__qualname__} may do anything; pass prefetch_next_epoch=True if its samples"
            " depend on their index alone"
        )
    return next(filter(None, (_why_not_frozen(part, depth - 1) for part in parts)), "")


def _why_not_private(tensor: torch.Tensor) -> str:
    """Returns an empty text if the workers got their own copy of this memory at the fork."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_shared():
        return "a tensor of the dataset is shared, sparse or on a device"
    if tensor.numel() == 0:
        return ""
    address = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, file, *_ = line.split()
        begin, end = (int(text, 16) for text in where.split("-"))
        if begin <= address < end:
            return (
                ""
                if rights[3] == "p" and file == "0"
                else "a tensor of the dataset lies in a mapped file"
            )
    return "a tensor of the dataset lies in unknown memory"


class Order:
    """Predicts which batches the next pass of a loader begins with. Holds the sampler, not the
    loader.
    """

    def __init__(self, loader: Any, workers: int) -> None:
        self._outer = loader._index_sampler
        self._sampler = _sampler_of(loader)
        self._workers = workers
        self._most = workers * loader.prefetch_factor
        self._epochs: list[int] = []  # epochs that the program set, for samplers of TOLD

    def begins(self) -> None:
        """Notes that the program has begun a pass."""
        if type(self._sampler) in TOLD:
            self._epochs = [*self._epochs[-1:], self._sampler.epoch]

    def predicted(self) -> list[tuple[int, Any]]:
        """Returns the pairs of worker and task that PyTorch would send first."""
        twin = copy.copy(self._sampler)
        if type(twin) in DRAWING:
            given = twin.generator
            twin.generator = torch.Generator()
            twin.generator.set_state(torch.get_rng_state() if given is None else given.get_state())
            if given is None and type(twin) is RandomSampler:
                # RandomSampler draws a seed from the default generator, and seeds a generator of
                # its own with it.
                twin.generator.manual_seed(
                    int(torch.empty((), dtype=torch.int64).random_(generator=twin.generator))
                )
        if type(twin) in TOLD:
            # If the program kept the epoch from one pass to the next, it probably never sets it.
            forgotten = len(self._epochs) == 2 and self._epochs[0] == self._epochs[1]
            epoch = twin.epoch + (0 if forgotten else 1)
            if type(twin) is DistributedSampler:
                twin.epoch = epoch
            else:
                twin = self._sampler._in_epoch(epoch)
        outer = twin
        if self._outer is not self._sampler:
            outer = copy.copy(self._outer)
            outer.sampler = twin
        batches = itertools.islice(iter(outer), self._most)
        return [(number % self._workers, (number, batch)) for number, batch in enumerate(batches)]


def random_state() -> tuple[Any, ...]:
    """Returns the state of the generators that samples may draw from."""
    numpy = sys.modules.get("numpy")
    return (
        torch.get_rng_state(),
        random.getstate(),
        numpy.random.get_state() if numpy is not None else None,
    )


def restore(state: tuple[Any, ...]) -> None:
    """Puts back what `random_state` returned."""
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    if state[2] is not None:
        sys.modules["numpy"].random.set_state(state[2])
