# SPDX-License-Identifier: Apache-2.0
"""Attention within the windows of a Swin Transformer."""

from __future__ import annotations

import ctypes
from typing import Any, Union

import torch

from paceline._core.tensors import index_of, multiprocessors
from paceline.ops import _arguments as arguments
from paceline.ops import _device

Tensor = torch.Tensor
Packed = Union[Tensor, tuple[Tensor, Tensor, Tensor]]
# Blocks of a launch for each multiprocessor: as many as run there at once, so that all end at about
# the same time.
FORWARD_BLOCKS, BACKWARD_BLOCKS = 4, 2
is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


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
    tokens, and heads of 32 numbers; `index` has to lie within the table. All else is computed by
    PyTorch, as is a call within a function that `torch.compile` compiles, and a backward of which
    there will be another one. Scores and sums are float32. The gradient of `table` is summed in a
    fixed order. Numerics class: Reordered.

    Args:
        qkv: (windows, N, 3, heads, head_dim), or three tensors (windows, N, heads, head_dim).
        table: (entries, heads), the bias for each relative position.
        index: (N, N) or (N * N), whole numbers: the entry of each pair of tokens.
        mask: (M, N, N), added to the scores. Window w takes mask w % M. None: no mask.
        scale: of the scores, 1 / sqrt(head_dim) if None.

    Returns:
        (windows, N, heads * head_dim), in the dtype of qkv.

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
    if takes(qkv, table, index, mask):
        if isinstance(qkv, torch.Tensor):
            parts: tuple[Any, ...] = (_panels(qkv), None, None)
        else:
            parts = tuple(_panels(each) for each in qkv)
        found: Tensor = _Attention.apply(*parts, table, index, mask, float(scale))
        return found
    return by_torch(qkv, table, index, mask, float(scale))


def serves(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there may be kernels for some call on this device, with products of this dtype."""
    return device.type == _device.KIND and dtype in _device.TYPES


def takes(qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernels for GPUs compute this. The arguments are those of `window_attention`."""
    if is_compiling() or torch.jit.is_tracing():
        return False
    first = qkv if isinstance(qkv, torch.Tensor) else qkv[0]
    if not serves(first.device, first.dtype):
        return False
    windows, tokens, heads, depth = _shape(qkv)
    if tokens > _device.MOST_TOKENS or depth != _device.HEAD_DIM or windows * tokens * heads == 0:
        return False
    others = [table, index] if mask is None else [table, index, mask]
    parts = [qkv] if isinstance(qkv, torch.Tensor) else list(qkv)
    if any(each.dtype != first.dtype for each in parts) or index.dtype != torch.int64:
        return False
    # A mask is a constant of the model here.
    if mask is not None and (mask.requires_grad or not mask.is_floating_point()):
        return False
    return _device.takes("window_attention", [*parts, *others])


def _panels(tensor: Tensor) -> Tensor:
    """The same numbers, dense and at an address that the kernels can read. A view into a flat
    tensor, as the backward of `torch.cat` makes them, may lie anywhere.
    """
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % _device.PANEL_BYTES else tensor


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
    windows, tokens, heads, _ = _shape(qkv)
    arguments.tensor("table", table, "entries", heads)
    _floating("table", table)
    if not isinstance(index, torch.Tensor):
        raise TypeError(f"index is a {type(index).__name__}: pass a tensor of shape (N, N)")
    if tuple(index.shape) not in ((tokens, tokens), (tokens * tokens,)):
        raise ValueError(
            f"index has shape {tuple(index.shape)}: pass one of shape ({tokens}, {tokens})"
        )
    # PyTorch would take both for masks of the table.
    if index.is_floating_point() or index.dtype in (torch.bool, torch.uint8):
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
        windows, tokens = packed.shape[:2]
        out = packed.new_empty((windows, tokens, packed.shape[-2] * _device.HEAD_DIM))
        index = index.contiguous()
        masks = None if mask is None else mask.to(torch.float32).contiguous()
        biases = _biases(table)
        call = _call(packed, k, v, biases, index, masks, scale, FORWARD_BLOCKS)
        call.out = out.data_ptr()
        _device.launch(_device.functions().attention_forward, call, packed.device)
        ctx.save_for_backward(packed, k, v, table, index, masks)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor) -> tuple[Any, ...]:
        packed, k, v, table, index, masks = ctx.saved_tensors
        if torch.is_grad_enabled():  # for another backward
            return _grads_by_torch(packed, k, v, table, index, masks, ctx.scale, out_grad)
        tokens = packed.shape[1]
        biases = _biases(table)
        out_grad = _panels(out_grad.to(packed.dtype))
        grads = [None if each is None else torch.empty_like(each) for each in (packed, k, v)]
        table_grad = torch.empty_like(biases)
        call = _call(packed, k, v, biases, index, masks, ctx.scale, BACKWARD_BLOCKS)
        sums = biases.new_empty((call.slots, biases.shape[1], tokens, tokens))
        call.out_grad, call.table_grad, call.sums = (
            each.data_ptr() for each in (out_grad, table_grad, sums)
        )
        call.q_grad, call.k_grad, call.v_grad = _addresses(*grads)
        _device.launch(_device.functions().attention_backward, call, packed.device)
        return (*grads, table_grad.to(table.dtype), None, None, None)


def _biases(table: Tensor) -> Tensor:
    return table.detach().to(torch.float32).contiguous()


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


def _addresses(packed: Any, k: Any, v: Any) -> tuple[int, int, int]:
    if k is None:
        third = packed.shape[-2] * _device.HEAD_DIM * packed.element_size()
        first = packed.data_ptr()
        return first, first + third, first + 2 * third
    return packed.data_ptr(), k.data_ptr(), v.data_ptr()


def _call(
    packed: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    biases: Tensor,
    index: Tensor,
    masks: Tensor | None,
    scale: float,
    blocks: int,
) -> _device.Attention:
    windows, tokens = packed.shape[:2]
    entries, heads = biases.shape
    # A tensor with one window, or one token, may show any stride for it.
    token_stride = packed[0, 0].numel()
    slots = multiprocessors(index_of(packed.device)) * blocks // heads
    q_at, k_at, v_at = _addresses(packed, k, v)
    return _device.Attention(
        size=ctypes.sizeof(_device.Attention),
        type=_device.TYPES[packed.dtype],
        windows=windows,
        masks=1 if masks is None else masks.shape[0],
        tokens=tokens,
        heads=heads,
        entries=entries,
        window_stride=tokens * token_stride,
        token_stride=token_stride,
        slots=max(1, min(windows, slots)),
        q=q_at,
        k=k_at,
        v=v_at,
        table=biases.data_ptr(),
        index=index.data_ptr(),
        mask=None if masks is None else masks.data_ptr(),
        scale=scale,
    )


def by_torch(
    qkv: Packed, table: Tensor, index: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """The same in PyTorch's operations, which `torch.compile` can fuse."""
    windows, tokens, heads, depth = _shape(qkv)
    q, k, v = qkv.unbind(2) if isinstance(qkv, torch.Tensor) else qkv
    bias = table[index.reshape(-1)].view(tokens, tokens, heads).permute(2, 0, 1)[None]
    scores: Tensor = torch.mul(q, scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    if mask is not None:
        masks = mask.shape[0]
        # (images, masks, heads, N, N)
        added = bias[None] + mask[None, :, None].to(bias.dtype)
        scores = scores.view(windows // masks, masks, heads, tokens, tokens) + added
        scores = scores.view(windows, heads, tokens, tokens)
    else:
        scores = scores + bias
    out = scores.softmax(-1).to(v.dtype) @ v.transpose(1, 2)
    # Under autocast the products are of another dtype.
    return out.transpose(1, 2).reshape(windows, tokens, heads * depth).to(q.dtype)
