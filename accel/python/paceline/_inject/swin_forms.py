# SPDX-License-Identifier: Apache-2.0
"""The attention of Swin models as libraries write it, told in terms of one fused operator.

A form says how to recognise a class, and when a call of its forward is one that the operator can
make. It judges by what the object has. A module with a part that is not known here may compute
anything, so its calls are left to the library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch.nn import functional

Tensor = torch.Tensor


@dataclass
class Call:
    """One call that the operator can make if it takes such tensors."""

    x: Tensor
    windows: int
    size: int  # places in a window
    heads: int
    head_dim: int
    fused: bool  # query, key and value lie in one tensor
    table: Tensor
    index: Tensor
    mask: Tensor | None
    # Makes the call. Its argument is paceline.ops.window_attention.
    compute: Callable[[Callable[..., Tensor]], Any] = field(compare=False)


@dataclass(frozen=True)
class Form:
    """How one library writes window attention."""

    module: str
    name: str  # of the class
    signatures: tuple[tuple[str, ...], ...]  # of its forward
    parts: frozenset[str]  # names of all its submodules
    skipped: tuple[str, ...]  # submodules that the operator takes the place of
    helpers: tuple[str, ...]  # what the forward calls, which a subclass may override
    # Returns the call, or why it cannot be made. Its arguments: the module, then the names of the
    # forward's arguments with their values, then the names that the library's own file defines.
    read: Callable[[Any, dict[str, Any], dict[str, Any]], Call | str]
    table_within: str = ""  # submodule that holds the table, if not the module itself
    # Names of all parameters of the module that holds the table: one of these sets.
    parameters: tuple[frozenset[str], ...] = (frozenset(("relative_position_bias_table",)),)


_FUSED = getattr(functional, "scaled_dot_product_attention", None)  # PyTorch 2.0


def _is_replaced() -> bool:
    """Whether the program has put another function in the place of PyTorch's fused attention."""
    return getattr(functional, "scaled_dot_product_attention", None) is not _FUSED


def checked(call: Call) -> Call | str:
    """Returns the call, or why its tensors do not fit together. The library tells the error."""
    if call.index.numel() != call.size**2 or call.table.dim() != 2:
        return "a window of another size than the table's"
    if call.table.shape[1] != call.heads:
        return "heads of another number than the table's"
    mask = call.mask
    if mask is not None:
        if type(mask) is not Tensor or mask.requires_grad or not mask.is_floating_point():
            return "a mask that is learned, or no tensor of floats"
        if mask.dim() != 3 or call.windows % mask.shape[0] or mask.shape[1:] != (call.size,) * 2:
            return "a mask of another shape"
    return call


# -- timm and OpenMMLab
# ------------------------------------------------------------


def why_not_plain(module: Any, x: Tensor) -> str:
    """Returns why the parts that the operator replaces do more than it does, or an empty text."""
    # Either flag: PyTorch's fused attention goes by the module's, and Dropout by its own.
    if (module.training or module.attn_drop.training) and module.attn_drop.p > 0:
        return "dropout of attention"
    if module.softmax.dim != -1:
        return "a softmax over other values"
    return "" if x.dim() == 3 else "an input of another shape"


def _read_timm(module: Any, given: dict[str, Any], _: dict[str, Any]) -> Call | str:
    """OpenMMLab's classes have the same parts, and no `fused_attn`."""
    x, mask = given["x"], given.get("mask")
    if why := why_not_plain(module, x):
        return why
    heads, columns = module.num_heads, module.qkv.out_features
    if columns % (3 * heads):
        return "heads of another size"
    # PyTorch's fused attention, which timm can call instead, has no look at `scale`.
    is_fused = getattr(module, "fused_attn", False)
    if is_fused and _is_replaced():
        return "an attention that the program has replaced"
    scale = None if is_fused else module.scale

    def compute(attention: Callable[..., Tensor]) -> Tensor:
        qkv = module.qkv(x).reshape(call.windows, call.size, 3, heads, -1)
        mixed = attention(qkv, call.table, call.index, mask, scale=scale)
        result: Tensor = module.proj_drop(module.proj(mixed))
        return result

    call = Call(
        x=x,
        windows=x.shape[0],
        size=x.shape[1],
        heads=heads,
        head_dim=columns // (3 * heads),
        fused=True,
        table=module.relative_position_bias_table,
        index=module.relative_position_index,
        mask=mask,
        compute=compute,
    )
    return checked(call)


# -- torchvision
# ------------------------------------------------------------


def _read_torchvision(module: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    def mix(attention: Callable[..., Tensor], call: Call, cut: Tensor, mask: Any) -> Tensor:
        qkv = functional.linear(cut, module.qkv.weight, module.qkv.bias)
        qkv = qkv.reshape(call.windows, call.size, 3, call.heads, -1)
        return attention(qkv, call.table, call.index, mask, scale=call.head_dim**-0.5)

    return of_image(module, given["x"], library, module.relative_position_bias_table, mix)


def of_image(
    module: Any,
    x: Tensor,
    library: dict[str, Any],
    table: Tensor,
    mix: Callable[..., Tensor],
    fused: bool = True,
) -> Call | str:
    """torchvision's function takes an image apart, attends and puts it together again, so all of
    that is done here. It uses the weights of the two projections, and never calls them. `mix` is
    what happens within windows between the two.
    """
    if module.training and module.attention_dropout > 0:
        return "dropout of attention"
    function = library.get("shifted_window_attention")
    if getattr(function, "__module__", "") != "torchvision.models.swin_transformer":
        return "a shifted_window_attention that the program has replaced"
    if x.dim() != 4:
        return "an input of another shape"
    batch, height, width, channels = x.shape
    down, across = module.window_size
    heads = module.num_heads
    rows, columns = -(-height // down), -(-width // across)  # of windows
    if module.qkv.weight.shape[0] != 3 * channels or channels % heads:
        return "heads of another size"
    # An image of one window along a side is not shifted along it.
    shifts = (
        0 if rows == 1 else module.shift_size[0],
        0 if columns == 1 else module.shift_size[1],
    )

    def compute(attention: Callable[..., Tensor]) -> Tensor:
        whole = functional.pad(x, (0, 0, 0, columns * across - width, 0, rows * down - height))
        mask = None
        if any(shifts):
            whole = torch.roll(whole, (-shifts[0], -shifts[1]), (1, 2))
            mask = _mask_of_shift((rows, columns), (down, across), shifts, whole)
        cut = whole.reshape(batch, rows, down, columns, across, channels).transpose(2, 3)
        mixed = mix(attention, call, cut.reshape(call.windows, call.size, channels), mask)
        mixed = functional.linear(mixed, module.proj.weight, module.proj.bias)
        mixed = functional.dropout(mixed, module.dropout, module.training)
        mixed = mixed.reshape(batch, rows, columns, down, across, channels).transpose(2, 3)
        mixed = mixed.reshape(batch, rows * down, columns * across, channels)
        if any(shifts):
            mixed = torch.roll(mixed, shifts, (1, 2))
        return mixed[:, :height, :width].contiguous()

    call = Call(
        x=x,
        windows=batch * rows * columns,
        size=down * across,
        heads=heads,
        head_dim=channels // heads,
        fused=fused,
        table=table,
        index=module.relative_position_index,
        mask=None,
        compute=compute,
    )
    return checked(call)


def _mask_of_shift(
    counts: tuple[int, int], window: tuple[int, int], shifts: tuple[int, int], like: Tensor
) -> Tensor:
    """-100 for places of a window that are no neighbours in the image: the shift has brought one of
    them here from the other edge. It is not kept: one made while a CUDA graph is captured has no
    values until the graph runs.
    """

    def side(count: int, length: int, shift: int) -> Tensor:
        places = torch.arange(count * length, device=like.device)
        return (places >= count * length - shift).view(count, length)

    row, column = (side(*each) for each in zip(counts, window, shifts))
    # By window and place in it: whether it was brought here along each side.
    brought = row[:, None, :, None].int() + 2 * column[None, :, None, :].int()
    brought = brought.reshape(counts[0] * counts[1], window[0] * window[1])
    apart = brought[:, None, :] != brought[:, :, None]
    return torch.zeros(apart.shape, dtype=like.dtype, device=like.device).masked_fill_(apart, -100)


# -- Transformers
# ------------------------------------------------------------


def why_not_states(module: Any, given: dict[str, Any]) -> str:
    """Returns why the operator cannot give what is asked for, or an empty text."""
    if given.get("output_attentions"):
        return "attention weights are asked for"
    if given.get("head_mask") is not None:
        return "a mask of heads"
    if (module.training or module.dropout.training) and module.dropout.p > 0:
        return "dropout of attention"
    return ""


def _read_transformers(module: Any, given: dict[str, Any], _: dict[str, Any]) -> Call | str:
    """SwinSelfAttention, of releases until 5.0 and some later ones."""
    if why := why_not_states(module, given):
        return why
    projections = (module.query, module.key, module.value)
    heads, head_dim = module.num_attention_heads, module.attention_head_size

    def compute(attention: Callable[..., Tensor]) -> tuple[Tensor]:
        return (_of_three(attention, call, projections, head_dim**-0.5),)

    table = module.relative_position_bias_table
    call = of_states(module, given, heads, head_dim, table, compute)
    return call if isinstance(call, str) else checked(call)


# What a model hands down to all its layers, and this one has no look at.
_HANDED_DOWN = {"num_items_in_batch", "output_attentions", "output_hidden_states", "return_dict"}


def _read_transformers_5(module: Any, given: dict[str, Any], library: dict[str, Any]) -> Call | str:
    """SwinAttention of later releases, which calls an attention by name."""
    unknown = set(given) - {"hidden_states", "attention_mask"} - _HANDED_DOWN
    if unknown:
        return f"{min(unknown)}, an argument that this release does not know"
    if given.get("output_attentions"):
        return "attention weights are asked for"
    if module.training and module.attention_dropout > 0:
        return "dropout of attention"
    chosen = module.config._attn_implementation
    if chosen != "sdpa":
        return f"attention of the kind {chosen!r}"
    function = library["ALL_ATTENTION_FUNCTIONS"].get_interface(chosen, None)
    known = "transformers.integrations.sdpa_attention"
    if getattr(function, "__module__", "") != known or _is_replaced():
        return "an attention that the program has replaced"
    projections = (module.q_proj, module.k_proj, module.v_proj)
    head_dim = module.head_dim

    def compute(attention: Callable[..., Tensor]) -> tuple[Tensor, None]:
        return module.o_proj(_of_three(attention, call, projections, module.scaling)), None

    holder = module.relative_position_bias
    table = holder.relative_position_bias_table
    call = of_states(holder, given, module.num_attention_heads, head_dim, table, compute)
    return call if isinstance(call, str) else checked(call)


def of_states(
    holder: Any,
    given: dict[str, Any],
    heads: int,
    head_dim: int,
    table: Tensor,
    compute: Callable[..., Any],
) -> Any:
    """Returns the call, or why it cannot be made. `holder` has the index."""
    x = given["hidden_states"]
    if x.dim() != 3 or x.shape[2] != heads * head_dim:
        return "an input of another shape"
    return Call(
        x=x,
        windows=x.shape[0],
        size=x.shape[1],
        heads=heads,
        head_dim=head_dim,
        fused=False,
        table=table,
        index=holder.relative_position_index,
        mask=given.get("attention_mask"),
        compute=compute,
    )


def states(call: Call, projections: tuple[Any, ...]) -> tuple[Tensor, ...]:
    shape = (call.windows, call.size, call.heads, call.head_dim)
    return tuple(project(call.x).view(shape) for project in projections)


def _of_three(
    attention: Callable[..., Tensor], call: Call, projections: tuple[Any, ...], scale: float
) -> Tensor:
    return attention(states(call, projections), call.table, call.index, call.mask, scale=scale)


_OF_STATES = ("self", "hidden_states", "attention_mask")
SIGNATURES_OF_STATES = (
    (*_OF_STATES, "head_mask", "output_attentions"),
    (*_OF_STATES, "output_attentions"),
)
_SELF_ATTENTION: dict[str, Any] = {
    "signatures": SIGNATURES_OF_STATES,
    "parts": frozenset(("query", "key", "value", "dropout")),
    "skipped": ("dropout",),
    "helpers": ("transpose_for_scores",),
    "read": _read_transformers,
}

# OpenMMLab's libraries each have a copy of this class.
_OF_OPENMMLAB = (
    "mmpretrain.models.utils.attention",
    "mmdet.models.backbones.swin",
    "mmseg.models.backbones.swin",
)
_PARTS_OF_TIMM = frozenset(("qkv", "attn_drop", "proj", "proj_drop", "softmax"))

FORMS = (
    Form(
        module="timm.models.swin_transformer",
        name="WindowAttention",
        signatures=(("self", "x", "mask"),),
        parts=_PARTS_OF_TIMM,
        skipped=("attn_drop", "softmax"),
        helpers=("_get_rel_pos_bias",),
        read=_read_timm,
    ),
    *(
        Form(
            module=module,
            name="WindowMSA",
            signatures=(("self", "x", "mask"),),
            parts=_PARTS_OF_TIMM,
            skipped=("attn_drop", "softmax"),
            helpers=(),
            read=_read_timm,
        )
        for module in _OF_OPENMMLAB
    ),
    Form(
        module="torchvision.models.swin_transformer",
        name="ShiftedWindowAttention",
        signatures=(("self", "x"),),
        parts=frozenset(("qkv", "proj")),
        skipped=(),
        helpers=("get_relative_position_bias",),
        read=_read_torchvision,
    ),
    Form(
        module="transformers.models.swin.modeling_swin", name="SwinSelfAttention", **_SELF_ATTENTION
    ),
    Form(
        module="transformers.models.swin.modeling_swin",
        name="SwinAttention",
        signatures=((*_OF_STATES, "kwargs"),),
        parts=frozenset(("q_proj", "k_proj", "v_proj", "o_proj", "relative_position_bias")),
        skipped=("relative_position_bias",),
        helpers=(),
        read=_read_transformers_5,
        table_within="relative_position_bias",
    ),
    Form(
        module="transformers.models.donut.modeling_donut_swin",
        name="DonutSwinSelfAttention",
        **_SELF_ATTENTION,
    ),
    Form(
        module="transformers.models.maskformer.modeling_maskformer_swin",
        name="MaskFormerSwinSelfAttention",
        **_SELF_ATTENTION,
    ),
)
