# SPDX-License-Identifier: Apache-2.0
"""Programs that change what an optimizer on the fake device has been given. `AdamW` is the class under test: ours, or PyTorch's own with ours injected."""

LIES_OTHERWISE = """
from paceline.optim import _bulk

def transpose(params, optimizer):
    params[0].data = params[0].data.t()

def cut(params, optimizer):
    params[1].data = params[1].data[:50]
    params[1].grad = torch.ones(50)
    for key in ("exp_avg", "exp_avg_sq"):
        optimizer.state[params[1]][key].data = optimizer.state[params[1]][key].data[:50]

def as_whole(params, optimizer):
    params[2].data = params[2].data.view(32)
    params[2].grad = torch.ones(32)
    for key in ("exp_avg", "exp_avg_sq"):
        optimizer.state[params[2]][key].data = optimizer.state[params[2]][key].data.view(32)

def made(kind):
    torch.manual_seed(4)
    params = [torch.randn(6, 6).requires_grad_(), torch.randn(100).requires_grad_(), torch.randn(8, 4).requires_grad_()]
    return params, kind(params, lr=0.1)

for reader in (_bulk._reader, lambda: None):
    _bulk._reader = reader
    runs = [made(AdamW) for _ in range(2)] + [made(torch.optim.AdamW)]
    whole = [params[1].data for params, _ in runs]
    for number, change in enumerate([None, None, cut, None, as_whole, None, transpose, None]):
        for run, (params, optimizer) in enumerate(runs):
            on_gpu(run == 0)
            _device.is_capturing = lambda: AdamW is torch.optim.AdamW and run == 2
            give(params, number)
            if change:
                change(params, optimizer)
            optimizer.step()
            if change is cut:
                whole[run] = whole[run].clone()
        assert bool(launches()) == (AdamW is not torch.optim.AdamW or number < 6), number  # injected, state that lies otherwise than its parameter is PyTorch's
        for ours, theirs in zip(runs[0][0], runs[1][0]):
            assert torch.equal(ours, theirs), (number, (ours - theirs).abs().max())
        for ours, theirs in zip(runs[0][0], runs[2][0]):
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), (number, (ours - theirs).abs().max())
    assert torch.equal(whole[0][50:], whole[1][50:])
_device.is_capturing = lambda: False

# What does not fit is PyTorch's to refuse, and nothing is written past an end.
for what in ("parameter", "gradient"):
    params, optimizer = made(AdamW)
    on_gpu(True)
    for number in range(2):
        give(params, number)
        optimizer.step()
    whole = params[1].data
    if what == "parameter":
        params[1].data = whole[:50]
    else:
        params[1].grad.data = torch.ones(50)
    behind = whole[50:].clone()
    try:
        optimizer.step()
    except RuntimeError as error:
        assert "size" in str(error) or "shape" in str(error), error
    else:
        raise AssertionError(what)
    assert what != "parameter" or torch.equal(behind, whole[50:])
print("reached the end")
"""

HAS_NO_MEMORY = """
if hasattr(torch.utils, "swap_tensors"):
    params = [torch.nn.Parameter(torch.ones(8)) for _ in range(3)]
    optimizer = AdamW(params, lr=0.1)
    on_gpu(True)
    for number in range(4):
        for parameter in params if number < 2 else (params[0], params[2]):
            parameter.grad = torch.ones(8)
        if number == 2:
            params[1].grad = None
            torch.utils.swap_tensors(params[1], torch.nn.Parameter(torch.empty(8, device="meta")))
        before = params[0].detach().clone()
        optimizer.step()
        assert not torch.equal(before, params[0]), number
        assert launches(), number
print("reached the end")
"""
