# SPDX-License-Identifier: Apache-2.0
"""Loaders whose workers write batches straight into shared memory.

Samples, their order and random state equal those of torch.utils.data.DataLoader, bit for bit
(numerics class Bitwise). PyTorch's own loader serves the loaders that cannot be sped up.
`paceline.explain()` names them, and the reason for each.
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
    """torch.utils.data.DataLoader with torch's arguments and two more.

    Samples, their order and random state equal torch's, bit for bit.

    Args:
        prefetch_next_epoch: whether persistent workers begin the next epoch while this one ends.
            None: they do if that provably changes nothing. True: you state two things about the
            dataset. A sample depends only on its index and on the generators of torch, random and
            NumPy. Making a sample changes nothing that another sample depends on. False: never.
        device_copies: whether the next batch is copied to the GPU early. This needs `pin_memory`,
            and a program that copies its batches itself; its `.to(device)` and `.cuda()` then
            return the early copy. True: you state that the program does not write to a batch
            through `.numpy()` or a pointer before it copies it. PyTorch cannot see such writes.
            None: as the environment variable PACELINE_LOADER_DEVICE_COPIES says; the default is
            no early copies.

    Example:
        >>> rows = torch.utils.data.TensorDataset(torch.arange(6.0))
        >>> loader = paceline.loader.DataLoader(rows, batch_size=3, num_workers=2)
        >>> [batch.tolist() for (batch,) in loader]
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """

    def __init__(
        self,
        *args: Any,
        prefetch_next_epoch: bool | None = None,
        device_copies: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._paceline_prefetch_next_epoch = prefetch_next_epoch
        self._paceline_device_copies = device_copies

    def _get_iterator(self) -> Any:
        ours = _iterator.iterator(self)
        return super()._get_iterator() if ours is None else ours


def accelerate(
    loader: Any, *, prefetch_next_epoch: bool | None = None, device_copies: bool | None = None
) -> Any:
    """Accelerates an existing loader from its next iteration on.

    Args:
        loader: a `torch.utils.data.DataLoader`. It stays unchanged if its class makes its own
            iterators.
        prefetch_next_epoch: as for `DataLoader`; None changes nothing.
        device_copies: as for `DataLoader`; None changes nothing.

    Returns:
        The same loader.

    Example:
        >>> rows = torch.utils.data.TensorDataset(torch.arange(6.0))
        >>> loader = torch.utils.data.DataLoader(rows, batch_size=3, num_workers=2)
        >>> loader = paceline.loader.accelerate(loader, prefetch_next_epoch=True)
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
        if prefetch_next_epoch is not None:
            loader._paceline_prefetch_next_epoch = prefetch_next_epoch
        if device_copies is not None:
            loader._paceline_device_copies = device_copies
        if not _report.switch.startswith(_patch.ON):
            _report.switch = _patch.GIVEN
        _report.account_of(loader).why = _iterator.why_not(loader)
    return loader
