# SPDX-License-Identifier: Apache-2.0
"""The attention of Swin V2 models as libraries write it (Liu et al., arXiv 2111.09883).

The scores are cosines of queries and keys, times a learned scale for each head. The bias is that
of a table, as in the first version, and a small network makes the table. So the operator computes
it of queries and keys that have the length 1, with the scale in the queries. Its gradients of
queries, keys and table go on from there in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch.nn import functional

from paceline._inject.swin_forms import (
    SIGNATURES_OF_STATES,
    Call,
    Form,
    checked,
    of_image,
    of_states,
    states,
    why_not_plain,
    why_not_states,
)

Tensor = torch.Tensor
_LARGEST_SCALE = 100.0
_LARGEST_BIAS = 16


def _table_to_come(module: Any, heads: int) -> Tensor | str:
    """Returns a tensor of the shape of the table, which does not exist before the call is made, or
    why there is none.
    """
    scale = module.logit_scale.detach()
    if scale.shape != (heads, 1, 1):
        return "a scale for another number of heads"
    _, rows, columns, _ = module.relative_coords_table.shape
    return scale.view(1, heads).expand(rows * columns, heads)


def _of_cosines(
    attention: Callable[..., Tensor],
    call: Call,
    qkv: tuple[Tensor, ...],
    module: Any,
    network: Any,
    mask: Tensor | None,
) -> Tensor:
    """Each of `qkv` has the shape (windows, places, heads, values of a head)."""
    q, k, v = qkv
    scale = torch.clamp(module.logit_scale, max=math.log(_LARGEST_SCALE)).exp()
    q = (functional.normalize(q, dim=-1) * scale.view(call.heads, 1)).to(v.dtype)
    k = functional.normalize(k, dim=-1).to(v.dtype)
    table = network(module.relative_coords_table).view(-1, call.heads)
    if table.shape != call.table.shape:
        raise ValueError(f"the network makes {table.shape[0]} biases for {call.table.shape[0]}")
    table = _LARGEST_BIAS * torch.sigmoid(table)
    return attention((q, k, v), table, call.index, mask, scale=1.0)


def _read_timm(module: Any, given: dict[str, Any], _: dict[str, Any]) -> Call | str:
    """OpenMMLab's class has the same parts but for a bias of keys, which is 0."""
    x, mask = given["x"], given.get("mask")
    if why := why_not_plain(module, x):
        return why
    heads, columns = module.num_heads, module.qkv.weight.shape[0]
    if columns % (3 * heads):
        return "heads of another size"
    table = _table_to_come(module, heads)
    if isinstance(table, str):
        return table

    def compute(attention: Callable[..., Tensor]) -> Tensor:
        qkv = _projected(module, x).reshape(call.windows, call.size, 3, heads, -1).unbind(2)
        mixed = _of_cosines(attention, call, qkv, module, module.cpb_mlp, mask)
        result: Tensor = module.proj_drop(module.proj(mixed))
        return result

    call = Call(
        x=x,
        windows=x.shape[0],
        size=x.shape[1],
        heads=heads,
        head_dim=columns // (3 * heads),
        fused=False,
        table=table,
        index=module.relative_position_index,
        mask=mask,
        compute=compute,
    )
    return checked(call)


def _projected(module: Any, x: Tensor) -> Tensor:
    """The Linear itself is called where the library calls it: else its hooks stay silent."""
    bias = None
    if module.q_bias is not None:
        of_keys = getattr(module, "k_bias", None)
        of_keys = torch.zeros_like(module.v_bias) if of_keys is None else of_keys
        bias = torch.cat((module.q_bias, of_keys, module.v_bias))
    separate = getattr(module, "qkv_bias_separate", None)  # None: a release without the choice
    if separate is None or (bias is not None and not separate):
        return functional.linear(x, module.qkv.weight, bias)
    result: Tensor = module.qkv(x)
    return result if bias is None else result + bias


def _read_torchvision(module: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    heads = module.num_heads
    table = _table_to_come(module, heads)
    if isinstance(table, str):
        return table

    def mix(attention: Callable[..., Tensor], call: Call, cut: Tensor, mask: Any) -> Tensor:
        bias = module.qkv.bias
        if bias is not None:  # that of keys is 0
            of_queries, of_keys, of_values = bias.chunk(3)
            bias = torch.cat((of_queries, torch.zeros_like(of_keys), of_values))
        qkv = functional.linear(cut, module.qkv.weight, bias)
        parts = qkv.reshape(call.windows, call.size, 3, heads, -1).unbind(2)
        return _of_cosines(attention, call, parts, module, module.cpb_mlp, mask)

    return of_image(module, given["x"], library, table, mix, fused=False)


def _read_transformers(module: Any, given: dict[str, Any], _: dict[str, Any]) -> Call | str:
    if why := why_not_states(module, given):
        return why
    heads, head_dim = module.num_attention_heads, module.attention_head_size
    table = _table_to_come(module, heads)
    if isinstance(table, str):
        return table
    projections = (module.query, module.key, module.value)

    def compute(attention: Callable[..., Tensor]) -> tuple[Tensor]:
        # The library adds the mask two times.
        mask = None if call.mask is None else call.mask * 2
        network = module.continuous_position_bias_mlp
        return (_of_cosines(attention, call, states(call, projections), module, network, mask),)

    call = of_states(module, given, heads, head_dim, table, compute)
    return call if isinstance(call, str) else checked(call)


_OF_WINDOWS: dict[str, Any] = {
    "signatures": (("self", "x", "mask"),),
    "parts": frozenset(("cpb_mlp", "qkv", "attn_drop", "proj", "proj_drop", "softmax")),
    "skipped": ("attn_drop", "softmax"),
    "helpers": (),
    "read": _read_timm,
    "parameters": (
        frozenset(("logit_scale",)),
        frozenset(("logit_scale", "q_bias", "v_bias")),
    ),
}
_OF_STATES: dict[str, Any] = {
    "signatures": SIGNATURES_OF_STATES,
    "parts": frozenset(("continuous_position_bias_mlp", "query", "key", "value", "dropout")),
    "skipped": ("dropout",),
    "helpers": ("transpose_for_scores",),
    "read": _read_transformers,
    "parameters": (frozenset(("logit_scale",)),),
}

FORMS = (
    Form(module="timm.models.swin_transformer_v2", name="WindowAttention", **_OF_WINDOWS),
    Form(module="mmpretrain.models.utils.attention", name="WindowMSAV2", **_OF_WINDOWS),
    Form(
        module="torchvision.models.swin_transformer",
        name="ShiftedWindowAttentionV2",
        signatures=(("self", "x"),),
        parts=frozenset(("qkv", "proj", "cpb_mlp")),
        skipped=(),
        helpers=("get_relative_position_bias",),
        read=_read_torchvision,
        parameters=(frozenset(("logit_scale",)),),
    ),
    Form(
        module="transformers.models.swinv2.modeling_swinv2",
        name="Swinv2SelfAttention",
        **_OF_STATES,
    ),
    Form(
        module="transformers.models.swin2sr.modeling_swin2sr",
        name="Swin2SRSelfAttention",
        **_OF_STATES,
    ),
)
