# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own iterator in the place of ours, for the rest of a pass in which ours has failed.

It begins with the batch that the program has not got yet, and nothing is drawn from the program's
generators. Its workers are new, so what samples draw at random there differs from an unbroken pass.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import dataloader

_IS_ITERABLE = dataloader._DatasetKind.Iterable
_OURS = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_TORCHS = f"{Path(torch.__file__).resolve().parent}{os.sep}"
# Frames of this file alone say nothing: every error of PyTorch's iterator passes through it.
_ITERATOR = f"{Path(__file__).resolve().with_name('_iterator.py')}"
_WORKER_DIED = "signal_handling.py"


def is_ours(error: BaseException) -> bool:
    """Whether the error comes from our code. Errors of the program's code, which may run within
    ours (a signal handler, unpickling), and of dead workers are PyTorch's to raise.
    """
    found, trace = False, error.__traceback__
    while trace is not None:
        file = f"{Path(trace.tb_frame.f_code.co_filename).resolve()}"
        if not file.startswith((_OURS, _TORCHS)) or file.endswith(_WORKER_DIED):
            return False
        found = found or (file.startswith(_OURS) and file != _ITERATOR)
        trace = trace.tb_next
    return found


class Order:
    """The order of a pass that has begun, and after that the order of every later pass."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self.rest: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        # PyTorch makes two iterators when it begins, and uses the second one.
        rest, self.rest = self.rest, None
        yield from self._sampler if rest is None else rest

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]


class Kept:
    """What PyTorch's iterator reads of a loader. It does not keep the loader itself, which may keep
    our iterator.
    """

    def __init__(self, loader: Any) -> None:
        self.__dict__.update({k: v for k, v in vars(loader).items() if k != "_iterator"})
        self.multiprocessing_context = loader.multiprocessing_context
        self._auto_collation = loader._auto_collation
        self._index_sampler = Order(loader._index_sampler)

    @property
    def can_go_on(self) -> bool:
        """An iterable dataset goes on where it was, which new workers cannot."""
        return bool(self.__dict__["_dataset_kind"] != _IS_ITERABLE)

    def rest_of_pass(self, asked: Iterable[Any], later: Iterator[Any], seed: int) -> Any:
        """Returns PyTorch's iterator over the tasks that were `asked` for and `later` ones."""
        self._index_sampler.rest = itertools.chain(list(asked), later)
        generator = torch.Generator()
        generator.manual_seed(seed)
        self.generator = generator  # for the seed of the workers
        return dataloader._MultiProcessingDataLoaderIter(self)
