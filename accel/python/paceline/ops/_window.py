# SPDX-License-Identifier: Apache-2.0
"""Attention within the windows of a Swin Transformer."""

from __future__ import annotations

import functools
import math
from typing import Any, Union

import torch
import torch.nn.functional as F

from paceline._core.tensors import index_of, why_transformed
from paceline.ops import _arguments as arguments
from paceline.ops import _device, _window_kernels, _window_op

Tensor = torch.Tensor
Packed = Union[Tensor, tuple[Tensor, Tensor, Tensor]]
is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def window_attention(
    qkv: Packed,
    table: Tensor,
    index: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Softmax attention of each window and head, with a bias by the tokens' relative position.

    It computes what the attention of a Swin Transformer does between its two Linear layers (Liu et
    al., arXiv 2103.14030): ``softmax(scale * q @ k.T + table[index] + mask) @ v``.

    On a GPU of compute capability 8, 9 or 10 it is one kernel forward and three backward, and no
    scores are kept for the backward. That is so for float16 and bfloat16, windows of at most 64
    tokens, heads of 32 numbers, and an `index` of int64. All else is computed by PyTorch, as is a
    backward of which there will be another one. Scores and sums are float32. The gradient of
    `table` is summed in a fixed order. Numerics class: Reordered.

    On a processor, calls without gradients take PyTorch's fused attention, where it has one for
    masks: in float32 and bfloat16, if bias and mask are finite.

    Within a function that `torch.compile` compiles, the kernels stay from PyTorch 2.7 on, as an
    operator of the graph. Its gradient has no gradient there: PyTorch raises an error. What
    `torch.export` exports has PyTorch's operations, and needs no Paceline.

    Args:
        qkv: (windows, N, 3, heads, head_dim), or three tensors (windows, N, heads, head_dim): q, k
            and v. If these have several dtypes, PyTorch computes in the widest.
        table: (entries, heads), the bias for each relative position.
        index: (N, N) or (N * N), whole numbers: the entry of each pair of tokens. Negative ones
            count from the table's end, as in PyTorch. Where an entry is outside the table, the
            kernels give NaN, and PyTorch its error.
        mask: (M, N, N), added to the scores. Window w takes mask w % M. None: no mask.
        scale: of the scores, 1 / sqrt(head_dim) if None.

    Returns:
        (windows, N, heads * head_dim), in the dtype of qkv, or of q.

    Raises:
        TypeError: an argument is no tensor, or of a wrong kind of dtype.
        ValueError: a shape does not fit; the text says which.

    Example:
        >>> qkv = torch.zeros(2, 4, 3, 1, 8)
        >>> table, index = torch.zeros(9, 1), torch.zeros(4, 4, dtype=torch.int64)
        >>> paceline.ops.window_attention(qkv, table, index).shape
        torch.Size([2, 4, 8])
    """
    _check(qkv, table, index, mask)
    if scale is None:
        scale = _shape(qkv)[-1] ** -0.5
    parts: tuple[Any, ...] = (qkv, None, None) if isinstance(qkv, torch.Tensor) else tuple(qkv)
    if takes(qkv, table, index, mask):
        parts = tuple(None if each is None else _window_kernels.panels(each) for each in parts)
        inputs = (*parts, table, index, mask, float(scale))
        if not _learns(*parts, table):
            return _window_kernels.forward(*inputs)
        found: Tensor = _Attention.apply(*inputs)
        return found
    if is_compiling() and _window_op.exists() and _fits(qkv, table, index, mask):
        device = parts[0].device
        if _window_op.has_kernels(device.type, index_of(device)):
            return _window_op.call(*parts, table, index, mask, float(scale))
    fused = by_fused(qkv, table, index, mask, float(scale))
    return by_torch(qkv, table, index, mask, float(scale)) if fused is None else fused


def _learns(*tensors: Tensor | None) -> bool:
    """Whether there may be a backward."""
    learn = any(each is not None and each.requires_grad for each in tensors)
    return learn and torch.is_grad_enabled()


def serves(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there may be kernels for some call on this device, with products of this dtype."""
    return device.type == _device.KIND and dtype in _device.TYPES


def takes(qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernels for GPUs compute this. The arguments are those of `window_attention`."""
    if is_compiling() or torch.jit.is_tracing() or not _fits(qkv, table, index, mask):
        return False
    first = qkv if isinstance(qkv, torch.Tensor) else qkv[0]
    return _device.has_kernels("window_attention", first.device)


def _fits(qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernels compute this if there are kernels for the device."""
    first = qkv if isinstance(qkv, torch.Tensor) else qkv[0]
    if not serves(first.device, first.dtype):
        return False
    windows, tokens, heads, depth = _shape(qkv)
    if tokens > _device.MOST_TOKENS or depth != _device.HEAD_DIM or windows * tokens * heads == 0:
        return False
    parts = [qkv] if isinstance(qkv, torch.Tensor) else list(qkv)
    if any(each.dtype != first.dtype for each in parts) or index.dtype != torch.int64:
        return False
    # A mask is a constant of the model here.
    if mask is not None and (mask.requires_grad or not mask.is_floating_point()):
        return False
    others = [table, index] if mask is None else [table, index, mask]
    return _device.lie_together([*parts, *others])


def _shape(qkv: Packed) -> tuple[int, int, int, int]:
    """Windows, tokens, heads, and numbers of a head."""
    if isinstance(qkv, torch.Tensor):
        windows, tokens, _, heads, depth = qkv.shape
    else:
        windows, tokens, heads, depth = qkv[0].shape
    return windows, tokens, heads, depth


def _check(qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None) -> None:
    if isinstance(qkv, torch.Tensor):
        arguments.tensor("qkv", qkv, "windows", "N", 3, "heads", "head_dim")
        _floating("qkv", qkv)
    else:
        if len(qkv) != 3:
            raise ValueError(f"qkv has {len(qkv)} items: pass q, k and v, or one tensor")
        arguments.tensor("q", qkv[0], "windows", "N", "heads", "head_dim")
        for name, each in zip("qkv", qkv):
            arguments.tensor(name, each, *qkv[0].shape)
            _floating(name, each)
    windows, tokens, heads, depth = _shape(qkv)
    if depth == 0:
        name, first = ("qkv", qkv) if isinstance(qkv, torch.Tensor) else ("q", qkv[0])
        raise ValueError(
            f"{name} has shape {tuple(first.shape)}: pass heads of one number or more, the last"
            " dimension"
        )
    arguments.tensor("table", table, "entries", heads)
    _floating("table", table)
    if not isinstance(index, torch.Tensor):
        raise TypeError(f"index is a {type(index).__name__}: pass a tensor of shape (N, N)")
    if tuple(index.shape) not in ((tokens, tokens), (tokens * tokens,)):
        raise ValueError(
            f"index has shape {tuple(index.shape)}: pass one of shape ({tokens}, {tokens})"
        )
    # PyTorch would take both for masks of the table.
    floating = index.is_floating_point() or index.is_complex()
    if floating or index.dtype in (torch.bool, torch.uint8):
        raise TypeError(f"index has dtype {index.dtype}: pass index.long()")
    if mask is not None:
        arguments.tensor("mask", mask, "M", tokens, tokens)
        if not mask.is_floating_point():
            raise TypeError(
                f"mask has dtype {mask.dtype}: pass numbers that are added to the scores, such as"
                " 0 and -100"
            )
        if mask.shape[0] == 0 or windows % mask.shape[0] != 0:
            raise ValueError(
                f"mask has {mask.shape[0]} windows, and qkv {windows}: pass a mask of which the"
                " windows are a multiple"
            )


def _floating(name: str, value: Tensor) -> None:
    if not value.is_floating_point():
        raise TypeError(f"{name} has dtype {value.dtype}: pass {name}.float()")


class _Attention(torch.autograd.Function):
    """`packed` is q alone where k and v are given."""

    @staticmethod
    def forward(
        ctx: Any,
        packed: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        table: Tensor,
        index: Tensor,
        mask: Tensor | None,
        scale: float,
    ) -> Tensor:
        masks = _window_kernels.as_masks(mask)
        out = _window_kernels.forward(packed, k, v, table, index, masks, scale)
        ctx.save_for_backward(packed, k, v, table, index, masks)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor) -> tuple[Any, ...]:
        packed, k, v, table, index, masks = ctx.saved_tensors
        if torch.is_grad_enabled():  # for another backward
            return _grads_by_torch(packed, k, v, table, index, masks, ctx.scale, out_grad)
        grads = _window_kernels.backward(packed, k, v, table, index, masks, ctx.scale, out_grad)
        parts = grads[:-1] if k is not None else (grads[0], None, None)
        return (*parts, grads[-1], None, None, None)


def _grads_by_torch(
    packed: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    table: Tensor,
    index: Tensor,
    masks: Tensor | None,
    scale: float,
    out_grad: Tensor,
) -> tuple[Any, ...]:
    """The gradients with a graph of their own: the kernels have no second backward."""
    qkv = packed if k is None or v is None else (packed, k, v)
    out = by_torch(qkv, table, index, masks, scale)
    inputs = [packed, k, v, table]
    wanted = [each for each in inputs if each is not None and each.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, out_grad, create_graph=True))
    grads = [next(found) if each is not None and each.requires_grad else None for each in inputs]
    return (*grads, None, None, None)


@functools.cache
def _has_fused() -> bool:
    """Whether PyTorch's fused attention for processors takes masks."""
    fused = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    return fused is not None and "attn_mask" in str(fused.default._schema)


def _fuses(qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None) -> bool:
    """Whether by_fused() may compute this, but for the numbers of the mask."""
    parts = [qkv] if isinstance(qkv, torch.Tensor) else list(qkv)
    first = parts[0]
    if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.bfloat16):
        return False
    if is_compiling() or torch.jit.is_tracing() or _dispatch_modes() or why_transformed():
        return False
    others = [table, index] if mask is None else [table, index, mask]
    if torch.is_grad_enabled() and any(each.requires_grad for each in [*parts, *others]):
        return False
    alike = all(each.dtype is first.dtype for each in parts) and first.numel() > 0
    return alike and _device.lie_together([*parts, *others]) and _has_fused()


def by_fused(
    qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None, scale: float
) -> Tensor | None:
    """The same by PyTorch's fused attention for processors; None where that is not so."""
    if not _fuses(qkv, table, index, mask):
        return None
    windows, tokens, heads, depth = _shape(qkv)
    parts = qkv.unbind(2) if isinstance(qkv, torch.Tensor) else qkv
    # A row of minus infinity is NaN in PyTorch's other operations, and 0 here. A sum is the
    # quickest way to see one; it may also overflow.
    if not all(math.isfinite(each.sum()) for each in (table, mask) if each is not None):
        return None
    # In float32 in any case: a mask of its least number is minus infinity in 16 bits.
    added = table[index.reshape(-1).long()].float().view(1, tokens, tokens, heads)
    added = added.permute(0, 3, 1, 2).contiguous()
    if mask is not None:
        added = added + mask.float()[:, None]
    if 1 < len(added) < windows:
        added = added.repeat(windows // len(added), 1, 1, 1)
    added = added.expand(windows, -1, -1, -1)
    q, k, v = (each.transpose(1, 2) for each in parts)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)
    return out.transpose(1, 2).reshape(windows, tokens, heads * depth)


def by_torch(
    qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """The same in PyTorch's operations, which `torch.compile` can fuse."""
    windows, tokens, heads, depth = _shape(qkv)
    q, k, v = qkv.unbind(2) if isinstance(qkv, torch.Tensor) else qkv
    dtype = q.dtype
    widest = torch.promote_types(torch.promote_types(dtype, k.dtype), v.dtype)
    q, k, v = q.to(widest), k.to(widest), v.to(widest)
    bias = table[index.reshape(-1).long()].view(tokens, tokens, heads).permute(2, 0, 1)[None]
    scores: Tensor = torch.mul(q, scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    if mask is not None:
        masks = mask.shape[0]
        # (images, masks, heads, N, N). In the wider dtype: a mask of float32's least number is
        # minus infinity in 16 bits, and a row of nothing else NaN.
        added = bias[None] + mask[None, :, None]
        scores = scores.view(windows // masks, masks, heads, tokens, tokens) + added
        scores = scores.view(windows, heads, tokens, tokens)
    else:
        scores = scores + bias
    out = scores.softmax(-1).to(v.dtype) @ v.transpose(1, 2)
    # Under autocast the products are of another dtype.
    return out.transpose(1, 2).reshape(windows, tokens, heads * depth).to(dtype)
