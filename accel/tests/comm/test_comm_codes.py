# SPDX-License-Identifier: Apache-2.0
"""Codes of gradients by PyTorch's operators: what arrives and the residual add up to what was sent,
and a sum of codes is the sum of their values.
"""

from __future__ import annotations

from comm_programs import passes
from programs import Train
from test_comm_hierarchy import pytestmark

__all__ = ["pytestmark"]


def test_what_codes_lose_is_in_the_residual(train_by_fork: Train) -> None:
    passes(
        train_by_fork,
        """
        from paceline.comm import _codes
        torch.manual_seed(1)
        for codec in (_codes.FP16, _codes.BF16, _codes.INT8, _codes.ONE_BIT):
            for count in (1, 7, 256, 1024, 1300, 4100):
                for arrays in (1, 3):
                    values = torch.randn(arrays * count)
                    late = torch.randn(arrays * count) / 100
                    if count > 1024:
                        values[:1024] = late[:1024] = 0
                        values[1100:1200] *= 1e3
                    residual = late.clone()
                    codes = torch.full((arrays * _codes.bytes_of(codec, count),), 0x5a, dtype=torch.uint8)
                    _codes.encode(codec, values, residual, codes, arrays)
                    said = torch.empty_like(values)
                    _codes.decode(codec, codes, said, arrays)
                    close = 1e-6 * float(values.abs().max() + 1)
                    assert torch.allclose(said + residual, values + late, rtol=1e-5, atol=close), (codec, count)
                    for onto in (False, True):
                        out = torch.full((count,), 0.5)
                        _codes.decode(codec, codes, out, 1, arrays, onto)
                        assert torch.allclose(out, said.view(arrays, -1).sum(0) + 0.5 * onto, rtol=1e-5, atol=3 * close)
            # A value that is not finite arrives as one, and leaves no residual.
            values, residual = torch.ones(1024), torch.zeros(1024)
            values[5] = float("nan")
            codes = torch.empty(_codes.bytes_of(codec, 1024), dtype=torch.uint8)
            _codes.encode(codec, values, residual, codes)
            _codes.decode(codec, codes, values)
            assert not values[5].isfinite() and residual.isfinite().all(), codec
""",
        ranks=1,
    )
