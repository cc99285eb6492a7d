# SPDX-License-Identifier: Apache-2.0
"""Marks each wait for a batch, and counts the samples and tokens in it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from paceline._core import library as abi
from paceline._core.trace import trace
from paceline._tracing._patching import accept, replace

UNKNOWN = abi.SAMPLES_UNKNOWN
# What tokenizers and recipes of language models call the numbers of the tokens.
TOKENS = ("input_ids", "tokens")


def samples_in(batch: Any, torch: ModuleType, depth: int = 4) -> int:
    """Size of a batch: the first dimension of the first tensor found in it."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() > 0 else UNKNOWN
    if depth == 0 or isinstance(batch, (str, bytes)):
        return UNKNOWN
    if isinstance(batch, Mapping):
        parts = iter(batch.values())
    elif isinstance(batch, (tuple, list)):
        parts = iter(batch)
    else:
        attributes = getattr(batch, "__dict__", None)
        if not attributes:
            return UNKNOWN
        parts = iter(attributes.values())
    for _, part in zip(range(16), parts):
        found = samples_in(part, torch, depth - 1)
        if found != UNKNOWN:
            return found
    return UNKNOWN


def _count_samples(batch: Any, torch: ModuleType) -> int:
    try:
        return samples_in(batch, torch)
    except Exception:  # a user's mapping may do anything
        return UNKNOWN


def tokens_in(batch: Any) -> int:
    """Tokens of a batch for a language model, padding included; 0 if it is none. Shapes only: to
    read a mask would wait for the GPU that it lies on.
    """
    if not isinstance(batch, Mapping):
        return 0
    try:
        for name in TOKENS:
            if name in batch:
                ids = batch[name]
                return int(ids.numel()) if ids.dim() == 2 and not ids.is_floating_point() else 0
    except Exception:  # a user's mapping may do anything
        pass
    return 0


def patch(torch: ModuleType) -> None:
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    original = base.__next__
    if not accept("DataLoader.__next__", original):
        return
    gradients_on = torch.is_grad_enabled

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        library = trace.lib
        gradients = gradients_on()
        if library is None:
            # Evaluation alone does not make a training process.
            if not gradients or not trace.open():
                return original(self)
            library = trace.lib
            assert library is not None
        # One per DataLoader, alive as long as it: the iterator itself is new every epoch.
        loader = id(self._index_sampler)
        library.loader_enter(loader, gradients)
        samples, tokens = abi.NO_BATCH, 0
        try:
            batch = original(self)
            samples = _count_samples(batch, torch)
            tokens = tokens_in(batch) if gradients else 0
            return batch
        finally:
            library.loader_leave(loader, samples)
            if tokens:
                library.count(abi.BATCH_TOKENS, tokens)

    replace(base, "__next__", __next__)
