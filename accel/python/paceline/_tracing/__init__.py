# SPDX-License-Identifier: Apache-2.0
"""Host marks for PyTorch: seven functions are replaced, in place, by ones that mark and call the
original.

They are `_BaseDataLoaderIter.__next__`, `torch.autograd.backward` (Tensor.backward calls it by that
name), the `step` of every optimizer class and of GradScaler, `torch.save`, and the `save` and
`async_save` of torch.distributed.checkpoint. No class is replaced, no module hook is set, and DDP's
communication hook stays free.
"""

from __future__ import annotations

from types import ModuleType

from paceline._core import library as abi
from paceline._core import marks, on_demand
from paceline._core.imports import after_import
from paceline._core.trace import ALL_HOST_PHASES, trace
from paceline._tracing import _backward, _checkpoints, _loader, _optimizers
from paceline._tracing._patching import undo_all


def install(torch: ModuleType) -> None:
    trace.framework_id = abi.PYTORCH
    trace.framework_version = str(torch.__version__).encode()[:31]
    trace.host_phases = ALL_HOST_PHASES
    _loader.patch(torch)
    _backward.patch(torch)
    _optimizers.patch(torch)
    _optimizers.patch_scaler(torch)
    _checkpoints.patch(torch)
    marks.step_ended.append(on_demand.boundary)
    after_import("torch.distributed.checkpoint.state_dict_saver", _checkpoints.patch_distributed)


def uninstall() -> None:
    """Puts the originals back, so that a benchmark can compare with and without tracing in one
    process.
    """
    undo_all()
