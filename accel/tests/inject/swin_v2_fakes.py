# SPDX-License-Identifier: Apache-2.0
"""Classes of the shape of timm's, OpenMMLab's and Transformers' attention of Swin V2, for machines
that have none of them. tests/trainers/test_swin_v2_models.py has the real ones, and torchvision's.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from swin_fakes import masked
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor


class _Network(nn.Module):
    def __init__(self, heads: int, side: int, name: str) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.linspace(1.0, 6.0, heads).view(heads, 1, 1))
        layers = nn.Linear(2, 8), nn.ReLU(inplace=True), nn.Linear(8, heads, bias=False)
        setattr(self, name, nn.Sequential(*layers))
        entries = 2 * side - 1
        self.register_buffer("relative_coords_table", torch.randn(1, entries, entries, 2))
        index = torch.randint(0, entries**2, (side**2, side**2))
        self.register_buffer("relative_position_index", index)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, network: Any, mask: Any) -> Tensor:
        """Of (windows, places, heads, values of a head)."""
        heads, size = q.shape[2], q.shape[1]
        q, k = q.transpose(1, 2)[:, :, :, None], k.transpose(1, 2)[:, :, None]
        scores = functional.cosine_similarity(q, k, dim=-1)
        scores = scores * self.logit_scale.clamp(max=4.605170185988092).exp()
        made = network(self.relative_coords_table).view(-1, heads)
        bias = made[self.relative_position_index.view(-1)].view(size, size, heads)
        scores = scores + masked(16 * bias.permute(2, 0, 1).sigmoid(), mask, len(q))
        return torch.einsum("whij,wjha->wiha", scores.softmax(-1), v).flatten(2)


class WindowAttention(_Network):  # timm
    def __init__(
        self,
        dim: int = 16,
        heads: int = 2,
        side: int = 3,
        drop: float = 0.0,
        bias: bool = True,
        separate: bool = False,
    ) -> None:
        super().__init__(heads, side, "cpb_mlp")
        self.num_heads, self.qkv_bias_separate = heads, separate
        self.qkv, self.attn_drop = nn.Linear(dim, 3 * dim, bias=False), nn.Dropout(drop)
        self.q_bias = self.k_bias = self.v_bias = None
        if bias:
            del self.q_bias, self.k_bias, self.v_bias
            self.q_bias, self.v_bias = (nn.Parameter(torch.randn(dim)) for _ in range(2))
            self.register_buffer("k_bias", torch.zeros(dim), persistent=False)
        self.proj, self.proj_drop = nn.Linear(dim, dim), nn.Dropout(0.0)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        windows, places, _ = x.shape
        qkv = self.qkv(x)
        if self.q_bias is not None:
            qkv = qkv + torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        q, k, v = qkv.view(windows, places, 3, self.num_heads, -1).unbind(2)
        return self.proj_drop(self.proj(self._attend(q, k, v, self.cpb_mlp, mask)))


class WindowMSAV2(WindowAttention):  # OpenMMLab
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        del self.qkv_bias_separate, self.k_bias

    forward = WindowAttention.forward


class Swinv2SelfAttention(_Network):  # Transformers
    def __init__(self, dim: int = 16, heads: int = 2, side: int = 3, drop: float = 0.0) -> None:
        super().__init__(heads, side, "continuous_position_bias_mlp")
        self.num_attention_heads, self.attention_head_size = heads, dim // heads
        self.query, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.key, self.dropout = nn.Linear(dim, dim, bias=False), nn.Dropout(drop)

    def forward(
        self, hidden_states: Any, attention_mask: Any = None, output_attentions: Any = False
    ) -> Any:
        shape = (*hidden_states.shape[:2], self.num_attention_heads, -1)
        q, k, v = (p(hidden_states).view(shape) for p in (self.query, self.key, self.value))
        mask = None if attention_mask is None else attention_mask + attention_mask
        result = self._attend(q, k, v, self.continuous_position_bias_mlp, mask)
        return (result, "weights") if output_attentions else (result,)


LIBRARIES = {
    "timm.models.swin_transformer_v2": WindowAttention,
    "mmpretrain.models.utils.attention": WindowMSAV2,
    "transformers.models.swinv2.modeling_swinv2": Swinv2SelfAttention,
}
