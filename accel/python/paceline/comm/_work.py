# SPDX-License-Identifier: Apache-2.0
"""The handle of a collective that runs in the background. Communicator makes it."""

from __future__ import annotations

import ctypes

import torch

from paceline.comm import _native
from paceline.comm._handle import Handle

Tensor = torch.Tensor


class Work:
    """A collective that runs in the background, like torch.distributed's Work.

    `Communicator.all_reduce(tensor, async_op=True)` returns it. The communicator keeps the tensor
    alive until `wait` returns, or until it is closed.
    """

    def __init__(
        self, handle: Handle, tensor: Tensor, ticket: int, held: dict[int, tuple[Tensor, ...]]
    ) -> None:
        self._handle = handle
        self._ticket = ticket
        self._tensor = tensor
        self._held = held  # the communicator's tensors in flight

    def wait(self) -> bool:
        """Blocks until the collective has ended.

        Returns:
            True.

        Raises:
            CommError: if the communicator has failed or is closed.
        """
        self._handle._check(_native.functions().wait(self._handle._open(), self._ticket))
        self._held.pop(self._ticket, None)
        return True

    def is_completed(self) -> bool:
        """Tells whether the collective has ended, with success or not. Does not block."""
        completed = ctypes.c_uint32()
        self._handle._check(
            _native.functions().is_completed(
                self._handle._open(), self._ticket, ctypes.byref(completed)
            )
        )
        return completed.value != 0

    def result(self) -> list[Tensor]:
        """Returns a list with the collective's tensor, which holds the sum once `wait` has
        returned.
        """
        return [self._tensor]
