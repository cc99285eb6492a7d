# SPDX-License-Identifier: Apache-2.0
"""Loaders whose workers write batches straight into shared slabs. Samples, their order and random
state are those of torch.utils.data.DataLoader, bit for bit (numerics class Bitwise).

    loader = paceline.loader.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)
    paceline.loader.accelerate(loader)  # one that is there already

What is not expressly supported is left to PyTorch; `paceline.explain()` says what and why.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch.utils.data

from paceline.loader import _iterator, _patch, _report
from paceline.loader._images import ImageShards
from paceline.loader._records import RecordShards
from paceline.loader._sampler import ShardSampler
from paceline.loader._shards import TarShards
from paceline.loader._token_batches import TokenBatches

__all__ = [
    "DataLoader",
    "ImageShards",
    "RecordShards",
    "ShardSampler",
    "TarShards",
    "TokenBatches",
    "accelerate",
]

Sample = TypeVar("Sample", covariant=True)


class DataLoader(torch.utils.data.DataLoader[Sample]):
    """torch.utils.data.DataLoader with torch's arguments, and `ahead`: whether persistent workers
    begin the next epoch while this one ends. By default where it is proven to change nothing; True
    says that a sample depends on its index and on the generators of torch, random and NumPy alone,
    and that making it changes nothing else that another one depends on.

    `device_copies=True`, with pin_memory, begins to copy the next batch to the GPU where the
    program has been seen to do so itself, and hands that copy to its `.to(device)` or `.cuda()`. It
    says that the program writes to a batch in no way that PyTorch cannot see (through `.numpy()` or
    a pointer) before it copies it. None: as PACELINE_LOADER_DEVICE_COPIES says, by default not.
    """

    def __init__(
        self,
        *args: Any,
        ahead: bool | None = None,
        device_copies: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._paceline_ahead = ahead
        self._paceline_device_copies = device_copies

    def _get_iterator(self) -> Any:
        ours = _iterator.iterator(self)
        return super()._get_iterator() if ours is None else ours


def accelerate(loader: Any, ahead: bool | None = None, device_copies: bool | None = None) -> Any:
    """The same loader, accelerated from its next iteration on. One whose class makes iterators of
    its own is left as it is. `ahead` and `device_copies` are those of DataLoader; None leaves them
    as they are.
    """
    if type(loader)._get_iterator not in (
        torch.utils.data.DataLoader._get_iterator,
        DataLoader._get_iterator,
    ):
        _report.account_of(loader).left(
            loader, f"{type(loader).__qualname__} makes its own iterators"
        )
    else:
        _patch.patch()
        loader._paceline_loader = True
        if ahead is not None:
            loader._paceline_ahead = ahead
        if device_copies is not None:
            loader._paceline_device_copies = device_copies
        if not _report.switch.startswith(_patch.ON):
            _report.switch = _patch.GIVEN
        _report.account_of(loader).why = _iterator.why_not(loader)
    return loader
