# SPDX-License-Identifier: Apache-2.0
"""The codes FP16, BF16, Int8 and OneBit of tensors by PyTorch's operators, on the CPU and on GPUs.
The format is that of the library's codecs. _between_hosts uses them for gradients on GPUs, whose
bytes go over PyTorch's own process groups. Everything goes onto the current stream, and the host
waits for nothing.
"""

from __future__ import annotations

import torch

from paceline.comm._native import CODECS

Tensor = torch.Tensor

FP16, BF16, INT8, ONE_BIT = (CODECS[name] for name in ("FP16", "BF16", "Int8", "OneBit"))
HALVES = {FP16: torch.float16, BF16: torch.bfloat16}
INT8_BLOCK, SIGN_BLOCK, SCALE_BYTES = 256, 1024, 4
LEAST_SCALED = 1e-30  # below it, a scale would lose bits itself, so the block stays in the residual
ROUNDER = 12582912.0  # 1.5 * 2^23: adding and taking it off again rounds to nearest, ties to even


def bytes_of(codec: int, count: int) -> int:
    """The size of an array's code."""
    if codec in HALVES:
        return 2 * count
    if codec == INT8:
        return count + -(-count // INT8_BLOCK) * SCALE_BYTES
    return -(-count // 8) + -(-count // SIGN_BLOCK) * SCALE_BYTES


# `values` and `residual` are float32, `codes` bytes, all contiguous and of one dimension. Several
# arrays lie one after another.


def encode(codec: int, values: Tensor, residual: Tensor, codes: Tensor, arrays: int = 1) -> None:
    """codes = values + residual; then residual = what the coding lost."""
    rows = (values.view(arrays, -1), residual.view(arrays, -1), codes.view(arrays, -1))
    if codec in HALVES:
        _encode_halves(HALVES[codec], *rows)
    else:
        _in_blocks(_encode_int8 if codec == INT8 else _encode_signs, codec, *rows)


def decode(
    codec: int,
    codes: Tensor,
    values: Tensor,
    arrays: int = 1,
    sources: int = 1,
    onto: bool = False,
) -> None:
    """values = the sum of what `sources` codes say of each array, in their order; with what was
    there before if `onto`.
    """
    rows = values.view(arrays, -1)
    said = codes.view(arrays, sources, -1)
    one = torch.empty_like(rows)
    for source in range(sources):
        if codec in HALVES:
            one.copy_(said[:, source].view(HALVES[codec]))
        else:
            _in_blocks(
                _decode_int8 if codec == INT8 else _decode_signs, codec, one, said[:, source]
            )
        if source > 0 or onto:
            rows.add_(one)
        else:
            rows.copy_(one)


# -- a row for each array
# ------------------------------------------------------------


def _encode_halves(dtype: torch.dtype, values: Tensor, residual: Tensor, codes: Tensor) -> None:
    wanted = values + residual
    most = torch.finfo(dtype).max
    sent = torch.where(wanted.isinf(), wanted, wanted.clamp(-most, most)).to(dtype)
    codes.view(dtype).copy_(sent)
    torch.sub(wanted, sent, out=residual)
    residual.masked_fill_(~wanted.isfinite(), 0)


def _in_blocks(function: object, codec: int, *rows: Tensor) -> None:
    """Calls function(blocks of each tensor), of the whole blocks and of what is left over: tensors
    of (arrays, blocks, values), codes last.
    """
    *floats, codes = rows
    width = INT8_BLOCK if codec == INT8 else SIGN_BLOCK
    count = floats[0].shape[1]
    whole = count // width * width
    for begin, end, wide in ((0, whole, width), (whole, count, count - whole)):
        if begin < end:
            blocks = (end - begin) // wide
            at = bytes_of(codec, begin)
            coded = codes[:, at : at + blocks * bytes_of(codec, wide)]
            function(
                *(one[:, begin:end].unflatten(1, (blocks, wide)) for one in floats),
                coded.unflatten(1, (blocks, -1)),
            )  # type: ignore[operator]


def _encode_int8(values: Tensor, residual: Tensor, codes: Tensor) -> None:
    wanted = values + residual
    size = wanted.abs().amax(-1, keepdim=True)
    finite, small = size.isfinite(), size < LEAST_SCALED
    # Dividing by a number, PyTorch multiplies by its inverse on a GPU: another last bit.
    scale = torch.where(finite, size / torch.full_like(size, 127), torch.nan)
    scale.masked_fill_(small, 0)
    # In a block that is not finite, every value is 1 and the scale is NaN.
    factor = (127 / size).masked_fill_(small, 0)
    coded = torch.where(finite, (wanted * factor + ROUNDER) - ROUNDER, 1)
    codes[..., :SCALE_BYTES] = scale.view(torch.uint8)
    codes[..., SCALE_BYTES:] = coded.to(torch.int8).view(torch.uint8)
    residual.copy_(torch.where(finite, wanted - coded * scale, 0))


def _decode_int8(values: Tensor, codes: Tensor) -> None:
    torch.mul(codes[..., SCALE_BYTES:].view(torch.int8), _scale(codes), out=values)


def _encode_signs(values: Tensor, residual: Tensor, codes: Tensor) -> None:
    wanted = values + residual
    mean = wanted.abs().mean(-1, keepdim=True, dtype=torch.float64).float()
    scale = torch.where(mean.isfinite(), mean, torch.nan)
    negative = wanted.signbit()
    codes[..., :SCALE_BYTES] = scale.view(torch.uint8)
    bits = torch.nn.functional.pad(
        negative.to(torch.uint8), (0, -negative.shape[-1] % 8)
    ).unflatten(-1, (-1, 8))
    torch.sum(bits << _places(codes), -1, dtype=torch.uint8, out=codes[..., SCALE_BYTES:])
    residual.copy_(torch.where(mean.isfinite(), wanted - torch.where(negative, -scale, scale), 0))


def _decode_signs(values: Tensor, codes: Tensor) -> None:
    bits = (codes[..., SCALE_BYTES:].unsqueeze(-1) >> _places(codes)) & 1
    scale = _scale(codes)
    negative = bits.flatten(-2)[..., : values.shape[-1]].bool()
    # A sum of signs begins with 0, which may be all of it.
    torch.where(negative, -scale, scale, out=values).add_(0.0)


def _scale(codes: Tensor) -> Tensor:
    return codes[..., :SCALE_BYTES].clone(memory_format=torch.contiguous_format).view(torch.float32)


def _places(codes: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=codes.device)
