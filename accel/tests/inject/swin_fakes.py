# SPDX-License-Identifier: Apache-2.0
"""Classes of the shape of timm's, OpenMMLab's, torchvision's and Transformers' window attention, for
machines that have none of them. tests/trainers/test_swin_models.py has the real ones.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional

import torch
from torch import nn

Tensor = torch.Tensor


def plain_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Of (windows, places, heads, values of a head)."""
    scores = torch.einsum("wiha,wjha->whij", q * scale, k) + bias
    return torch.einsum("whij,wjha->wiha", scores.softmax(-1), v)


class _Table(nn.Module):
    def __init__(self, heads: int, side: int) -> None:
        super().__init__()
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * side - 1) ** 2, heads))
        index = torch.randint(0, (2 * side - 1) ** 2, (side**2, side**2))
        self.register_buffer("relative_position_index", index)

    def _get_rel_pos_bias(self) -> Tensor:
        chosen = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        size = self.relative_position_index.shape[0]
        return chosen.view(size, size, -1).permute(2, 0, 1)


def masked(bias: Tensor, mask: Optional[Tensor], windows: int) -> Tensor:  # noqa: UP045
    if mask is None:
        return bias
    return bias + mask.repeat(windows // mask.shape[0], 1, 1).unsqueeze(1)


class WindowAttention(_Table):  # timm
    def __init__(self, dim: int = 16, heads: int = 2, side: int = 3, drop: float = 0.0) -> None:
        super().__init__(heads, side)
        self.num_heads, self.scale = heads, 0.2
        self.qkv, self.attn_drop = nn.Linear(dim, 3 * dim), nn.Dropout(drop)
        self.proj, self.proj_drop = nn.Linear(dim, dim), nn.Dropout(0.0)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        windows, places, dim = x.shape
        qkv = self.qkv(x).reshape(windows, places, 3, self.num_heads, -1)
        bias = masked(self._get_rel_pos_bias(), mask, windows)
        scores = torch.einsum("wiha,wjha->whij", qkv[:, :, 0] * self.scale, qkv[:, :, 1]) + bias
        scores = self.attn_drop(self.softmax(scores))
        mixed = torch.einsum("whij,wjha->wiha", scores, qkv[:, :, 2])
        return self.proj_drop(self.proj(mixed.reshape(windows, places, dim)))


class WindowMSA(WindowAttention):  # OpenMMLab
    forward = WindowAttention.forward


def shifted_window_attention(module: Any, x: Tensor) -> Tensor:
    batch, height, width, channels = x.shape
    (down, across), heads = module.window_size, module.num_heads
    whole = nn.functional.pad(x, (0, 0, 0, -width % across, 0, -height % down))
    rows, columns = whole.shape[1:3]
    shifts = (
        module.shift_size[0] if rows > down else 0,
        module.shift_size[1] if columns > across else 0,
    )
    whole = torch.roll(whole, (-shifts[0], -shifts[1]), (1, 2))
    places = torch.arange(rows * columns).view(rows, columns)
    home = torch.roll(places, (-shifts[0], -shifts[1]), (0, 1))  # where each place was
    found = torch.empty_like(whole)
    for top in range(0, rows, down):
        for left in range(0, columns, across):
            part = (slice(None), slice(top, top + down), slice(left, left + across))
            qkv = nn.functional.linear(whole[part], module.qkv.weight, module.qkv.bias)
            qkv = qkv.reshape(batch, down * across, 3, heads, channels // heads)
            corner = home[part[1:]].reshape(-1)
            row, column = torch.div(corner, columns, rounding_mode="floor"), corner % columns
            brought = (row < top + shifts[0]).int() + 2 * (column < left + shifts[1]).int()
            apart = (brought[:, None] != brought) * -100.0
            bias = module.get_relative_position_bias() + apart
            q, k, v = qkv.unbind(2)
            mixed = plain_attention(q, k, v, bias, (channels // heads) ** -0.5)
            found[part] = mixed.reshape(batch, down, across, channels)
    found = nn.functional.linear(found, module.proj.weight, module.proj.bias)
    return torch.roll(found, shifts, (1, 2))[:, :height, :width].contiguous()


shifted_window_attention.__module__ = "torchvision.models.swin_transformer"


class ShiftedWindowAttention(_Table):  # torchvision
    def __init__(
        self, dim: int = 16, heads: int = 2, side: int = 3, shift: int = 1, drop: float = 0.0
    ) -> None:
        super().__init__(heads, side)
        self.num_heads, self.window_size, self.shift_size = heads, [side, side], [shift, shift]
        self.attention_dropout, self.dropout = drop, 0.0
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def get_relative_position_bias(self) -> Tensor:
        return self._get_rel_pos_bias()

    def forward(self, x: Tensor) -> Tensor:
        return shifted_window_attention(self, x)


class SwinSelfAttention(_Table):  # Transformers until 5.0
    def __init__(self, dim: int = 16, heads: int = 2, side: int = 3, drop: float = 0.0) -> None:
        super().__init__(heads, side)
        self.num_attention_heads, self.attention_head_size = heads, dim // heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.dropout = nn.Dropout(drop)

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Any = None,
        head_mask: Any = None,
        output_attentions: Any = False,
    ) -> Any:
        windows, places, dim = hidden_states.shape
        shape = (windows, places, self.num_attention_heads, -1)
        q, k, v = (p(hidden_states).view(shape) for p in (self.query, self.key, self.value))
        bias = masked(self._get_rel_pos_bias(), attention_mask, windows)
        mixed = plain_attention(q, k, v, bias, self.attention_head_size**-0.5)
        mixed = mixed if head_mask is None else mixed * head_mask
        result = self.dropout(mixed.reshape(windows, places, dim))
        return (result, "weights") if output_attentions else (result,)


class SwinRelativePositionBias(_Table):
    def forward(self) -> Tensor:
        return self._get_rel_pos_bias()


def sdpa(*_: Any, **__: Any) -> Any:
    raise AssertionError("the fake does not call it")


sdpa.__module__ = "transformers.integrations.sdpa_attention"
ALL_ATTENTION_FUNCTIONS = SimpleNamespace(get_interface=lambda name, default: sdpa)


class SwinAttention(nn.Module):  # Transformers of late
    def __init__(self, dim: int = 16, heads: int = 2, side: int = 3, drop: float = 0.0) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.num_attention_heads, self.head_dim = heads, dim // heads
        self.attention_dropout, self.scaling = drop, 0.3
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim) for _ in range(3))
        self.o_proj = nn.Linear(dim, dim)
        self.relative_position_bias = SwinRelativePositionBias(heads, side)

    def forward(self, hidden_states: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        windows, places, dim = hidden_states.shape
        shape = (windows, places, self.num_attention_heads, -1)
        q, k, v = (p(hidden_states).view(shape) for p in (self.q_proj, self.k_proj, self.v_proj))
        bias = masked(self.relative_position_bias(), attention_mask, windows)
        mixed = plain_attention(q, k, v, bias, self.scaling).reshape(windows, places, dim)
        return self.o_proj(mixed), None


LIBRARIES = {
    "timm.models.swin_transformer": (WindowAttention,),
    "mmpretrain.models.utils.attention": (WindowMSA,),
    "torchvision.models.swin_transformer": (ShiftedWindowAttention,),
    "transformers.models.swin.modeling_swin": (SwinAttention, SwinRelativePositionBias),
    # In the place of Transformers' older releases, whose class has the same form.
    "transformers.models.donut.modeling_donut_swin": (SwinSelfAttention,),
}
NAMES: dict[Any, str] = {SwinSelfAttention: "DonutSwinSelfAttention"}
