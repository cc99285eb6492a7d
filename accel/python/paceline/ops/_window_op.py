# SPDX-License-Identifier: Apache-2.0
"""Window attention as an operator of PyTorch's, which `torch.compile` keeps in its graphs.

Programs that are not compiled call the kernels by a function of autograd, which costs the host
less.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from paceline._core.imports import after_import
from paceline._core.tensors import index_of
from paceline.ops import _device, _window_kernels

Tensor = torch.Tensor
_INPUTS = "Tensor packed, Tensor? k, Tensor? v, Tensor table, Tensor index, Tensor? mask"
_compiler: Any = getattr(torch, "compiler", None)
_is_exporting = getattr(_compiler, "is_exporting", None)  # PyTorch 2.7


def exists() -> bool:
    """Whether there is such an operator in what is being traced."""
    return _is_exporting is not None and not _is_exporting()


def has_kernels(kind: str, index: int) -> bool:
    """Whether the library has kernels for this device. Asked while a graph is made, and kept."""
    return _device.has_kernels("window_attention", torch.device(kind, index))


def call(*inputs: Any) -> Tensor:
    """The arguments are those of `_window_kernels.forward`."""
    found: Tensor = torch.ops.paceline.window_attention(*inputs)
    return found


def _ready(*tensors: Tensor | None) -> list[Any]:
    """The tensors as the kernels take them. A graph may come from another process, by a cache, so
    the kernels are asked for here, too.
    """
    index = index_of(next(each.device for each in tensors if each is not None))
    if why := _device.why_unavailable(index):
        raise RuntimeError(f"paceline.ops: window attention was compiled for kernels: {why}")
    return [None if each is None else _window_kernels.panels(each) for each in tensors]


def _forward(packed: Tensor, k: Any, v: Any, *others: Any) -> Tensor:
    return _window_kernels.forward(*_ready(packed, k, v), *others)


def _like_forward(packed: Tensor, *_: Any) -> Tensor:
    return packed.new_empty(_window_kernels.shape_of_out(packed))


def _backward(packed: Tensor, k: Any, v: Any, *others: Any) -> list[Tensor]:
    return _window_kernels.backward(*_ready(packed, k, v), *others)


def _like_backward(packed: Tensor, k: Any, v: Any, table: Tensor, *_: Any) -> list[Tensor]:
    inputs = [packed, table] if k is None else [packed, k, v, table]
    return [each.new_empty(each.shape) for each in inputs]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, out_grad: Tensor) -> tuple[Any, ...]:
    grads = torch.ops.paceline.window_attention_backward(*ctx.saved_tensors, ctx.scale, out_grad)
    parts = grads[:-1] if len(grads) > 2 else (grads[0], None, None)
    return (*parts, grads[-1], None, None, None)


def _register() -> None:
    forward = torch.library.custom_op(
        "paceline::window_attention",
        _forward,
        mutates_args=(),
        schema=f"({_INPUTS}, float scale) -> Tensor",
    )
    forward.register_fake(_like_forward)
    forward.register_autograd(_differentiate, setup_context=_keep)
    backward = torch.library.custom_op(
        "paceline::window_attention_backward",
        _backward,
        mutates_args=(),
        schema=f"({_INPUTS}, float scale, Tensor out_grad) -> Tensor[]",
    )
    backward.register_fake(_like_backward)


def _keep_answers(_: ModuleType) -> None:
    _compiler.assume_constant_result(has_kernels)


if _is_exporting is not None:
    _register()
    # Done at once it would import the compiler into all programs that import the operators.
    after_import("torch._dynamo", _keep_answers)
