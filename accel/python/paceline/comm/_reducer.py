# SPDX-License-Identifier: Apache-2.0
"""What compression needs of the object that sums gradients over all ranks.

`Communicator` and `Hierarchy` both have it. Compression knows only this, so that neither imports
the other.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from torch import Tensor


class Reducer(Protocol):
    """Sums tensors over all ranks."""

    @property
    def rank(self) -> int: ...

    @property
    def ranks(self) -> int: ...

    def shape(self) -> str: ...

    def plan(self) -> str: ...

    def residual_count(self, count: int) -> int: ...

    def all_reduce(self, tensor: Tensor, *, async_op: Literal[True]) -> Any: ...

    def all_reduce_coded(
        self, tensor: Tensor, residual: Tensor, codec: int, keep: int = 0
    ) -> Any: ...
