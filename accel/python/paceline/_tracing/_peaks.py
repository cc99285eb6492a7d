# SPDX-License-Identifier: Apache-2.0
"""Peak floating-point operations per second of NVIDIA's GPUs, dense, by the kind of product.

From NVIDIA's data sheets and architecture white papers of these products; figures that they give
with sparsity are halved. A GPU that is not listed has no peak, so there is no MFU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

HALF, TF32, SINGLE = "half", "tf32", "single"

# Teraflops: half precision (bfloat16 or float16) with sums in float32, TF32, float32 without tensor
# cores; 0: the GPU has none. The first line whose name occurs in the device's name counts.
_TERAFLOPS: tuple[tuple[str, float, float, float], ...] = (
    ("GB200", 2500, 1250, 80),
    ("B200", 2250, 1125, 75),
    ("H200 NVL", 835.5, 417.5, 60),
    ("H200", 989.4, 494.7, 67),
    ("GH200", 989.4, 494.7, 67),
    ("H100 PCIe", 756, 378, 51),
    ("H100 NVL", 835.5, 417.5, 60),
    ("H100", 989.4, 494.7, 67),
    ("A100", 312, 156, 19.5),
    ("A40", 149.7, 74.8, 37.4),
    ("A30", 165, 82, 10.3),
    ("A10", 125, 62.5, 31.2),
    ("L40S", 362, 183, 91.6),
    ("L40", 181, 90.5, 90.5),
    ("L4", 121, 60, 30.3),
    ("V100-PCIE", 112, 0, 14),
    ("V100", 125, 0, 15.7),
    ("T4", 65, 0, 8.1),
)


def kind_of(torch: ModuleType, product: Any) -> str:
    """How the device computes this product."""
    if product.dtype in (torch.bfloat16, torch.float16):
        return HALF
    if product.dtype is not torch.float32:
        return str(product.dtype)
    if product.is_cuda and product.dim() == 4 and _takes_tf32(torch.backends.cudnn):
        return TF32
    return TF32 if product.is_cuda and _takes_tf32(torch.backends.cuda.matmul) else SINGLE


def _takes_tf32(flags: Any) -> bool:
    try:
        return bool(flags.allow_tf32)
    except RuntimeError:  # the program uses the newer setting
        return str(getattr(flags, "fp32_precision", "")) == "tf32"


def peak(device: str, kind: str) -> float:
    """Operations per second; 0: unknown."""
    words = device.replace("-", " ").split()
    if "MIG" in words:  # a part of a GPU
        return 0.0
    for name, half, tf32, single in _TERAFLOPS:
        if name in device and name.split()[0].split("-")[0] in words:
            found = {HALF: half, TF32: tf32 or single, SINGLE: single}
            return found.get(kind, 0.0) * 1e12
    return 0.0
