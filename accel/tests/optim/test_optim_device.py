# SPDX-License-Identifier: Apache-2.0
"""paceline.optim on a GPU, without one: the driver is a fake one that runs the kernels' own source
(fake_cuda/fake_cuda.cpp), and tensors that are taken for a GPU's lie on the CPU. So every step can be
compared, bit for bit, with the library's own step on the CPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from programs import Train

THEIRS = getattr(getattr(torch, "amp", None), "GradScaler", None)
BEGIN = """
import ctypes, copy
fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.fake_cuda_log.restype = ctypes.c_char_p
from paceline import optim
from paceline.optim import _device, _report

_device.stream_of = lambda device: 77
_device.is_capturing = lambda: False
torch.set_num_threads(1)

def on_gpu(yes):
    _device.KIND = "cpu" if yes else "cuda"

def launches():
    lines = [line.split()[1] for line in fake.fake_cuda_log().decode().splitlines() if line.startswith("cuLaunch")]
    fake.fake_cuda_forget()
    return lines

def leaves(dtype=torch.float32):
    torch.manual_seed(4)
    shapes = [(61, 37), (9001,), (0, 5), (), (3, 1)]
    made = [torch.randn(shape) for shape in shapes] + [torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)]
    return [tensor.to(dtype).requires_grad_() for tensor in made]

def give(params, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in params:
        parameter.grad = (torch.randn(parameter.shape, generator=generator) * scale).to(parameter.dtype)

def same(one, other):
    assert one.dtype == other.dtype and torch.equal(one, other), (one - other).abs().max()

def compare(ours, theirs):
    assert ours._plan is not None, _report.outcome_of(ours).device  # or it compares the CPU's with itself
    for (p, q) in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"]):
        same(p, q)
        a, b = ours.state.get(p, {}), theirs.state.get(q, {})
        assert list(a) == list(b), (list(a), list(b))
        for key in a:
            same(a[key], b[key]) if a[key] is not None else None
"""


@pytest.fixture
def on_fake(train_by_fork: Train, fake_device: dict[str, str]) -> Train:
    def run(program: str, **extra: str) -> None:
        result = train_by_fork(BEGIN + program, **{**fake_device, **extra})
        assert result.code == 0, result.output
        assert "reached the end" in result.output, result.output

    return run  # type: ignore[return-value]


def test_every_optimizer_is_the_cpus_to_the_bit(on_fake: Train) -> None:
    on_fake("""
for kind, options in [
    (optim.AdamW, {}),
    (optim.AdamW, {"amsgrad": True, "maximize": True}),
    (optim.Adam, {"weight_decay": 0.1}),
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.LAMB, {}),
    (optim.LARS, {"lr": 0.1, "weight_decay": 0.1}),
]:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for clip in (None, 0.5):
            ours, theirs = leaves(dtype), leaves(dtype)
            one, other = kind(ours, **options, max_grad_norm=clip), kind(theirs, **options, max_grad_norm=clip)
            schedule = torch.optim.lr_scheduler.StepLR(one, 2), torch.optim.lr_scheduler.StepLR(other, 2)
            for number in range(5):
                for params, optimizer in ((ours, one), (theirs, other)):
                    on_gpu(optimizer is one)
                    give(params, number)
                    versions = [parameter._version for parameter in params]
                    optimizer.step()
                    assert all(p._version > v for p, v in zip(params, versions))
                for one_schedule in schedule:
                    one_schedule.step()
                launched = launches()
                by_layer = kind in (optim.LAMB, optim.LARS)
                assert len(launched) == 1 + by_layer + (clip is not None), launched
                if clip is not None:
                    assert one.grad_norm.dtype is torch.float64 and float(one.grad_norm) == other.grad_norm
                compare(one, other)
assert "tensors fused on the GPU" in "".join(_report.lines())
print("reached the end")
""")


def test_what_a_scaler_leaves_is_read_on_the_device(on_fake: Train) -> None:
    on_fake("""
if optim.AdamW._step_supports_amp_scaling:
    ours, theirs = leaves(), leaves()
    one, other = optim.AdamW(ours, max_grad_norm=1.0), optim.AdamW(theirs, max_grad_norm=1.0)
    for number in range(5):
        for params, optimizer in ((ours, one), (theirs, other)):
            on_gpu(optimizer is one)
            give(params, number, 512.0)
            # As GradScaler.step() does.
            optimizer.grad_scale = torch.tensor(512.0)
            optimizer.found_inf = torch.tensor(1.0 if number in (0, 3) else 0.0)
            optimizer.step()
        if number == 0:  # the device alone knows that nothing happened, so its state is there
            assert all(float(state["step"]) == 0 and not state["exp_avg"].any() for state in one.state.values())
            continue
        compare(one, other)
    assert float(one.state[ours[0]]["step"]) == 3
print("reached the end")
""")


def test_our_scaler_decides_on_the_device(on_fake: Train) -> None:
    """The host reads nothing, one pass over the gradients is all that a skipped step takes, and the
    bits are the CPU's.
    """
    on_fake("""
from torch.utils._python_dispatch import TorchDispatchMode
from paceline.amp import LossScaler

class Reads(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(function), "the host reads a value of the device"
        return function(*args, **(kwargs or {}))

for kind, options, expected in (
    (optim.AdamW, {}, ["paceline_optim_norm", "paceline_optim_update"]),
    (optim.SGD, {"lr": 0.1, "max_grad_norm": 1.0}, ["paceline_optim_norm", "paceline_optim_update"]),
):
    for dtype in (torch.float32, torch.bfloat16):
        runs = []
        for gpu in (True, False):
            params = leaves(dtype)
            optimizer, scaler = kind(params, **options), LossScaler(init_scale=512.0, growth_interval=2)
            trace = []
            for number in range(8):
                on_gpu(gpu)
                give(params, number, 512.0)
                if number in (2, 5):
                    params[1].grad[77] = float("nan" if number == 2 else "inf")
                fake.fake_cuda_forget()
                step = lambda: (scaler.scale(torch.ones(())), scaler.step(optimizer), scaler.update())
                if gpu and number > 0:
                    with Reads():
                        step()
                    assert launches() == expected, launches()
                else:
                    step()
                trace.append((scaler.state_dict(), [p.detach().clone() for p in params]))
            runs.append((optimizer, trace))
        (one, ours), (other, theirs) = runs
        compare(one, other)
        for (state, params), (expected_state, others) in zip(ours, theirs):
            assert state == expected_state, (state, expected_state)
            for p, q in zip(params, others):
                same(p, q)
        assert float(one.state[one.param_groups[0]["params"][0]].get("step", 6)) == 6

# Where the library cannot update on the GPU, nothing waits in silence.
on_gpu(True)
params = [torch.zeros(4, dtype=torch.float64, requires_grad=True)]
optimizer, scaler = optim.AdamW(params), LossScaler()
scaler.scale((params[0] * 2).sum()).backward()
try:
    scaler.step(optimizer)
except RuntimeError as error:
    assert "float64" in str(error) and "use torch.amp.GradScaler" in str(error), error
else:
    raise AssertionError("it was not refused")
assert not params[0].any()
print("reached the end")
""")


def test_a_learning_rate_on_the_device_is_not_read_by_the_host(on_fake: Train) -> None:
    on_fake("""
if int(torch.__version__.split(".")[0]) >= 2:
    ours, theirs = leaves(), leaves()
    rate = torch.tensor(0.25)
    on_gpu(True)
    one, other = optim.AdamW(ours, lr=rate, capturable=True), optim.AdamW(theirs, lr=0.25)
    for number in range(4):
        for params, optimizer in ((ours, one), (theirs, other)):
            on_gpu(optimizer is one)
            give(params, number)
            optimizer.step()
        compare(one, other)
        rate.div_(2)
        other.param_groups[0]["lr"] /= 2
print("reached the end")
""")


def test_state_goes_to_torch_and_back(on_fake: Train) -> None:
    on_fake("""
ours, theirs = leaves(), leaves()
on_gpu(True)
one = optim.AdamW(ours)
for number in range(3):
    give(ours, number)
    one.step()
    if number == 1:
        saved = copy.deepcopy(one.state_dict())
        for (parameter, now) in zip(theirs, ours):
            parameter.data.copy_(now.data)
torchs = torch.optim.AdamW(theirs)
torchs.load_state_dict(saved)
give(theirs, 2)
torchs.step()
for a, b in zip(ours, theirs):
    assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)
back = optim.AdamW(theirs)
back.load_state_dict(copy.deepcopy(torchs.state_dict()))
launches()
give(theirs, 3)
back.step()
assert launches() == ["paceline_optim_update"]
assert float(back.state[theirs[0]]["step"]) == 4
print("reached the end")
""")


def test_what_the_library_does_not_do_there_stays_torchs_with_a_reason(on_fake: Train) -> None:
    on_fake("""
on_gpu(True)
for optimizer, why in [
    (optim.SGD(leaves(), lr=0.1, momentum=0.9, dampening=0.5), "dampening on a GPU"),
    (optim.AdamW([torch.randn(9, 14)[:, ::2].requires_grad_()]), "a parameter with gaps in its memory"),
    (optim.AdamW([torch.randn(5, dtype=torch.float64).requires_grad_()]), "float64"),
]:
    params = optimizer.param_groups[0]["params"]
    for number in range(2):
        before = [parameter.detach().clone() for parameter in params]
        give(params, number)
        optimizer.step()
        assert not any(a.numel() and torch.equal(a, b) for a, b in zip(before, params))
    assert why in _report.outcome_of(optimizer).device, _report.outcome_of(optimizer).device
assert launches() == []
_device.is_capturing = lambda: True
params = leaves()
optimizer = optim.AdamW(params)
give(params, 1)
try:
    optimizer.step()
except RuntimeError as error:
    assert "before the capture" in str(error), error
else:
    raise AssertionError("a table was made inside a capture")
_device.is_capturing = lambda: False
optimizer.step()
_device.is_capturing = lambda: True
give(params, 2)
optimizer.step()
assert len(launches()) == 2
print("reached the end")
""")


def test_without_a_module_everything_stays_torchs(on_fake: Train, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    on_fake(
        """
on_gpu(True)
params = leaves()
optimizer = optim.AdamW(params)
give(params, 1)
optimizer.step()
assert "no module in" in _report.outcome_of(optimizer).device
assert launches() == []
half = leaves(torch.bfloat16)
_device._native.why_unavailable = lambda: "no library"
try:
    optimizer = optim.AdamW(half)
    give(half, 1)
    optimizer.step()
except RuntimeError as error:
    assert "no module in" in str(error), error
else:
    raise AssertionError("a step without masters")
print("reached the end")
""",
        PACELINE_KERNELS=str(empty),
    )


@pytest.mark.skipif(THEIRS is None, reason="a scaler for the CPU came with PyTorch 2.3")
def test_a_scaler_of_torchs_takes_16_bit_parameters_in_scaled_step(on_fake: Train) -> None:
    on_fake("""
for dtype in (torch.bfloat16, torch.float16):
    ours, theirs = leaves(dtype), leaves(dtype)
    pairs = [(p, optim.AdamW(p, max_grad_norm=0.5), torch.amp.GradScaler("cpu", init_scale=8.0)) for p in (ours, theirs)]
    for number in range(3):
        for params, optimizer, scaler in pairs:
            on_gpu(params is ours)
            scaler.scale(torch.ones(()))
            give(params, number, 8.0)
            if number == 1:
                params[0].grad[2, 3] = float("inf")
            optimizer.scaled_step(scaler)
            scaler.update()
    assert [scaler.get_scale() for _, _, scaler in pairs] == [4.0, 4.0]
    assert float(pairs[0][1].state[ours[0]]["step"]) == 2
    compare(pairs[0][1], pairs[1][1])
print("reached the end")
""")
