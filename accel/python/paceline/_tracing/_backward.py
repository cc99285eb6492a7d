# SPDX-License-Identifier: Apache-2.0
"""Marks the backward pass.

The phase comm_exposed is measured as follows. The autograd engine runs its final callbacks when the
last gradient has been accumulated, before backward returns. It runs them in the order in which they
were queued. DDP queues the callback that waits for its buckets when the last bucket is ready. FSDP
queues its own in backward, too. A hook on the loss runs before the rest of the graph, so the
callback that it queues runs first. It marks the end of computation; the time until backward returns
is the wait for communication. This holds in PyTorch 1.13 and 2.14. The hook is set only while more
than one rank trains, and removed with the backward.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from paceline._core import library as abi
from paceline._core.trace import trace
from paceline._tracing import _device
from paceline._tracing._patching import accept, compiling, replace, say_once


def _ranks_communicate() -> bool:
    distributed = sys.modules.get("torch.distributed")
    try:
        return (
            distributed is not None
            and distributed.is_available()
            and distributed.is_initialized()
            and distributed.get_world_size() > 1
        )
    except Exception:
        return False


def patch(torch: ModuleType) -> None:
    original = torch.autograd.backward
    if not accept("torch.autograd.backward", original):
        return
    is_compiling = compiling(torch)
    start_device = _device.starter(torch)
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def watch_end(tensors: Any, library: abi.Library) -> Any:
        def first_of_all(_: Any) -> None:
            queue_callback(library.gradients_done)

        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.requires_grad
                and tensor.grad_fn is not None
            ):
                return tensor.register_hook(first_of_all)
        return None

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or (trace.lib is None and not trace.open()):
            return original(*args, **kwargs)
        library = trace.lib
        assert library is not None
        if trace.device_pending:
            start_device(library)
        library.backward_enter()
        hook = None
        try:
            if _ranks_communicate():
                try:
                    hook = watch_end(args[0] if args else kwargs.get("tensors"), library)
                except Exception as error:
                    say_once("comm_exposed", error)
            return original(*args, **kwargs)
        finally:
            if hook is not None:
                hook.remove()
            library.backward_leave()

    replace(torch.autograd, "backward", backward)
    # TorchScript knows its built-in functions by identity.
    builtins = sys.modules.get("torch.jit._builtins")
    if builtins is not None:
        builtins._builtin_ops.append((backward, "aten::backward"))
        if builtins._builtin_table is not None:
            builtins._builtin_table[id(backward)] = "aten::backward"
