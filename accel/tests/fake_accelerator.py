# SPDX-License-Identifier: Apache-2.0
"""A CUDA device that is not there, as far as loaders see one: PyTorch believes that it has an
accelerator, and "pinned" memory is memory that is noted. So PyTorch's own way of pinning, its
thread included, runs here too, and is the oracle of ours. tests/gpu runs the same comparison on a
real device.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import handle_torch_function, has_torch_function_unary


class FakeAccelerator:
    """Installed as long as the fixture lasts. Notes how often PyTorch's own `Tensor.pin_memory` has
    copied.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pinned: dict[int, torch.Tensor] = {}  # by address; kept, so that none is used twice
        self.copies_of_torch = 0
        empty_strided = torch.empty_strided

        def make(*args: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
            made = empty_strided(*args, **options)
            if pin_memory:
                self.pinned[made.data_ptr()] = made.detach()
            return made

        def pin_memory(tensor: torch.Tensor, device: Any = None) -> Any:
            if has_torch_function_unary(tensor):
                return handle_torch_function(torch.Tensor.pin_memory, (tensor,), tensor)
            if tensor.is_pinned():
                return tensor
            self.copies_of_torch += 1
            made = make(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=True)
            made.data.copy_(tensor.data)
            return made

        def is_pinned(tensor: torch.Tensor) -> bool:
            return (
                tensor.layout is torch.strided
                and tensor.numel() > 0
                and tensor.data_ptr() in self.pinned
            )

        monkeypatch.setattr(torch, "empty_strided", make)
        monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
        monkeypatch.setattr(torch.Tensor, "is_pinned", is_pinned)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        if hasattr(torch, "accelerator"):
            monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
            monkeypatch.setattr(
                torch.accelerator, "current_accelerator", lambda: torch.device("cuda")
            )
            monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
            monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
