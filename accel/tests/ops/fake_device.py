# SPDX-License-Identifier: Apache-2.0
"""How programs of tests begin that run kernels without a GPU: the driver is a fake one that runs
the kernels' own source, and tensors that are taken for a GPU's lie on the CPU.
"""

BEGIN = """
import ctypes
fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.fake_cuda_log.restype = ctypes.c_char_p
from paceline import ops
from paceline.ops import _device, _window, _window_kernels

_device.stream_of = lambda device: 77
_window_kernels.multiprocessors = lambda index: 2
torch.set_num_threads(1)

def on_gpu(yes):
    _device.KIND = "cpu" if yes else "cuda"

def launches():
    lines = [line.split() for line in fake.fake_cuda_log().decode().splitlines()]
    lines = [line for line in lines if line[0] == "cuLaunchKernel"]
    fake.fake_cuda_forget()
    assert all(line[4:6] == ["stream", "77"] for line in lines), lines
    return [line[1] for line in lines]

def attention(windows=4, tokens=49, heads=2, masks=2, dtype=torch.float16):
    torch.manual_seed(3)
    index = torch.arange(tokens)[:, None] - torch.arange(tokens) + tokens - 1
    mask = torch.where(torch.rand(masks, tokens, tokens) < 0.3, -100.0, 0.0) if masks else None
    qkv = torch.randn(windows, tokens, 3, heads, 32).to(dtype).requires_grad_()
    return qkv, torch.randn(2 * tokens - 1, heads).requires_grad_(), index, mask

def in_double(qkv, table, index, mask):
    found = [each.detach().double().requires_grad_() for each in (qkv, table)]
    return (*found, index, None if mask is None else mask.double())

def with_grads(qkv, table, index, mask):
    out = ops.window_attention(qkv, table, index, mask)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, (qkv, table), weights)]

def near(found, wanted, dtype):
    for one, other in zip(found, wanted):
        error = (one.double() - other).abs().max()
        assert error <= 3 * torch.finfo(dtype).eps * other.abs().max(), (error, other.abs().max())
"""
