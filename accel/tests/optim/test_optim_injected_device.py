# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own optimizers on a GPU in unmodified programs, without one: the driver is a fake one
that runs the kernels' own source, and tensors that are taken for a GPU's lie on the CPU. The same
optimizers updated by the library on the CPU are the oracle, to the bit.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from optim_changes import (
    HAS_NO_MEMORY,
    LIES_OTHERWISE,
    NEGATED,
    PARAMETERS_AS_GRADIENTS,
    STATE_WITHOUT_STRIDES,
)
from programs import Train

NEW = int(torch.__version__.split(".")[0]) >= 2
BEGIN = """
import copy, ctypes, paceline
fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
fake.fake_cuda_log.restype = ctypes.c_char_p
from paceline.optim import _device, _report
_device.stream_of, _device.is_capturing = (lambda device: 77), (lambda: False)
torch.set_num_threads(1)

def on_gpu(yes):
    _device.KIND = "cpu" if yes else "cuda"

def launches():
    lines = [line.split()[1] for line in fake.fake_cuda_log().decode().splitlines() if line.startswith("cuLaunch")]
    fake.fake_cuda_forget()
    return lines

def leaves():
    torch.manual_seed(4)
    made = [torch.randn(shape) for shape in [(61, 37), (9001,), (0, 5), (), (3, 1)]]
    made.append(torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last))
    return [tensor.requires_grad_() for tensor in made]

def give(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in params:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)

def compare(one, other):
    for p, q in zip(one.param_groups[0]["params"], other.param_groups[0]["params"]):
        assert torch.equal(p, q), (p - q).abs().max()
        a, b = one.state.get(p, {}), other.state.get(q, {})
        assert list(a) == list(b), (list(a), list(b))
        for key, value in a.items():
            assert value is b[key] or (torch.equal(value, b[key]) and value.dtype is b[key].dtype), key

def both(one, other, number, between=None):
    for optimizer in (one, other):
        params = optimizer.param_groups[0]["params"]
        on_gpu(optimizer is one)
        give(params, number)
        if between:
            between(params, optimizer)
        optimizer.step()
    compare(one, other)

def told(optimizer):
    return _report.outcome_of(optimizer).told()["text"]

ADAMW = (torch.optim.AdamW, {"amsgrad": True})
MOMENTUM = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1})
KINDS = [ADAMW, (torch.optim.Adam, {"weight_decay": 0.1}), (torch.optim.SGD, {"lr": 0.1}), MOMENTUM]
"""


@pytest.fixture
def on_fake(train_by_fork: Train, fake_device: dict[str, str]) -> Train:
    def run(program: str, ranks: int = 1, **extra: str) -> None:
        environment = {**fake_device, "PACELINE_OPTIMIZER": "Auto", "OMP_NUM_THREADS": "1", **extra}
        result = train_by_fork(BEGIN + program, ranks=ranks, **environment)
        assert result.code == 0, result.output
        assert result.output.count("reached the end") == ranks, result.output

    return run  # type: ignore[return-value]


def test_every_optimizer_is_the_cpus_to_the_bit(on_fake: Train) -> None:
    on_fake("""
for kind, options in KINDS:
    one, other = kind(leaves(), **options), kind(leaves(), **options)
    assert type(one) is kind
    schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 2) for optimizer in (one, other)]
    for number in range(5):
        both(one, other, number)
        assert launches() == ["paceline_optim_update"], number
        for schedule in schedules:
            schedule.step()
    assert told(one).startswith("6 tensors fused on the GPU, class Reordered; 5 steps by the library, median "), told(one)
    assert told(one).endswith(" ms of the host"), told(one)
    assert told(other).startswith("6 tensors fused on the CPU, class Reordered; 5 steps by the library, median "), told(other)
print("reached the end")
""")


@pytest.mark.skipif(not NEW, reason="no fused steps on the CPU, which plays the GPU")
def test_fused_and_capturable_count_on_the_device(on_fake: Train) -> None:
    on_fake("""
from paceline.optim import _torch_state
cases = [(kind, {**options, "fused": True}) for kind, options in KINDS] + [
    (torch.optim.AdamW, {"capturable": True}), (torch.optim.AdamW, {"fused": True, "lr": torch.tensor(0.01)}),
]
for kind, options in cases:
    for dtype in (torch.float32, torch.bfloat16):
        def made():
            params = [p.detach().to(dtype).requires_grad_() for p in leaves()]
            return kind(params, **{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in options.items()})
        one, other = made(), made()
        other.param_groups[0].update(capturable=False, fused=None)  # on the CPU only those are the library's
        for number in range(4):
            for optimizer in (one, other):
                on_gpu(optimizer is one)
                params = optimizer.param_groups[0]["params"]
                give(params, number)
                optimizer.step()
            compare(one, other)
            assert launches() == ["paceline_optim_update"], (kind, options, told(one))
        assert told(one).startswith("6 tensors fused on the GPU"), told(one)
        for p in one.param_groups[0]["params"]:
            assert "step" not in one.state[p] or float(one.state[p]["step"]) == 4
# A gradient scaler's own protocol stays PyTorch's.
one = torch.optim.AdamW(leaves(), fused=True)
give(one.param_groups[0]["params"], 1)
on_gpu(True)
one.grad_scale, one.found_inf = torch.tensor(2.0), torch.tensor(0.0)
one.step()
assert "for a gradient scaler" in told(one) and launches() == [], told(one)
print("reached the end")
""")


def test_what_the_program_changes_counts(on_fake: Train) -> None:
    on_fake("""
def replace(params, optimizer):
    optimizer.state[params[1]]["exp_avg"] = torch.ones(9001)

def reload(params, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

def count(params, optimizer):
    optimizer.state[params[0]]["step"].fill_(7.0)

def move(params, optimizer):
    params[0].data = params[0].data.clone()
    params[0].grad = params[0].grad.clone()

def fewer(params, optimizer):
    params[1].grad = None

def other_parameter(params, optimizer):  # the old one still has its gradient
    params[1] = torch.full((9001,), 0.5, requires_grad=True)
    params[1].grad = torch.ones(9001)

def clear(params, optimizer):
    optimizer.state.clear()

def forget(params, optimizer):
    del optimizer.state[params[0]]

def begin_anew(params, optimizer):
    optimizer.state[params[0]] = {}

one, other = torch.optim.Adam(leaves()), torch.optim.Adam(leaves())
for number, change in enumerate([other_parameter, None, clear, None, forget, None, begin_anew, None]):
    both(one, other, number, change)
    assert len(launches()) == 1, change

one, other = torch.optim.Adam(leaves()), torch.optim.Adam(leaves())
for number, change in enumerate([None, fewer, replace, reload, count, move, None]):
    both(one, other, number, change)
    assert len(launches()) == 1, change
first, second = one.param_groups[0]["params"][:2]
assert float(one.state[first]["step"]) == 10 and float(one.state[second]["step"]) == 6

# One that gets its first gradient late.
one, other = torch.optim.SGD(leaves(), lr=0.1, momentum=0.9), torch.optim.SGD(leaves(), lr=0.1, momentum=0.9)
for number in range(4):
    both(one, other, number, fewer if number < 2 else None)
    assert len(launches()) == 1
print("reached the end")
""")


def test_a_parameter_that_lies_otherwise_in_the_same_memory_is_noticed(on_fake: Train) -> None:
    on_fake("AdamW = torch.optim.AdamW" + LIES_OTHERWISE)


def test_a_tensor_that_has_no_memory_any_more_ends_no_step(on_fake: Train) -> None:
    on_fake("AdamW = torch.optim.AdamW" + HAS_NO_MEMORY)


def test_a_gradient_may_be_a_parameter(on_fake: Train) -> None:
    on_fake("AdamW = torch.optim.AdamW" + PARAMETERS_AS_GRADIENTS)


def test_state_may_hold_what_has_no_strides(on_fake: Train) -> None:
    on_fake("AdamW = torch.optim.AdamW" + STATE_WITHOUT_STRIDES)


def test_a_parameter_that_is_negated_lazily_keeps_its_sign(on_fake: Train) -> None:
    on_fake("AdamW = torch.optim.AdamW" + NEGATED)


def test_an_optimizer_goes_when_the_program_lets_it(on_fake: Train) -> None:
    on_fake("""
import gc, weakref

class Whole(torch.optim.AdamW):
    def __getstate__(self):
        return self.__dict__

for hooked in (False, True):
    on_gpu(True)
    params = leaves()
    optimizer = Whole(params)
    give(params, 0)
    if hooked:  # a step within backward, as programs make it, or their statistics
        params[0].register_hook(lambda grad, optimizer=optimizer: None)
    optimizer.step()
    assert told(optimizer).startswith("6 tensors fused on the GPU"), told(optimizer)
    if not hooked:
        one, other = optimizer, copy.deepcopy(optimizer)
        both(one, other, 1)
        both(one, other, 2)
        del one, other
    gone = weakref.ref(optimizer), weakref.ref(params[1])
    del optimizer, params
    gc.collect()
    assert [one() for one in gone] == [None, None], hooked
print("reached the end")
""")


def test_a_checkpoint_goes_to_torch_and_back(on_fake: Train) -> None:
    on_fake("""
from paceline.optim import _patch
for kind, options in KINDS:
    on_gpu(True)
    one, theirs = kind(leaves(), **options), kind(leaves(), **options)
    for number in range(6):
        if number == 4:
            theirs.load_state_dict(copy.deepcopy(one.state_dict()))
        for optimizer in (one, theirs):
            _device.is_capturing = lambda: optimizer is theirs  # then torch steps
            params = optimizer.param_groups[0]["params"]
            give(params, number)
            optimizer.step()
        assert len(launches()) == 1
        for p, q in zip(one.param_groups[0]["params"], theirs.param_groups[0]["params"]):
            assert torch.allclose(p, q, rtol=1e-5, atol=1e-6)
        assert one.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]
    assert "a CUDA graph is being captured" in told(theirs), told(theirs)
    _device.is_capturing = lambda: False
    give(theirs.param_groups[0]["params"], 6)
    theirs.step()
    assert len(launches()) == 1
print("reached the end")
""")


def test_what_asks_for_torchs_own_code_gets_it(on_fake: Train) -> None:
    on_fake(
        """
on_gpu(True)
doubles = [torch.ones(3, dtype=torch.float64, requires_grad=True)]
cases = [
    (torch.optim.SGD(leaves(), lr=0.1, momentum=0.9, dampening=0.5), "dampening on a GPU"),
    (torch.optim.SGD(doubles, lr=0.1), "float64 gradients of float64 parameters"),
]
"""
        + (
            """
cases += [
    (torch.optim.AdamW(leaves(), weight_decay=torch.tensor(0.1)), "weight_decay or betas are tensors"),
]
"""
            if NEW
            else ""
        )
        + """
for optimizer, why in cases:
    params = optimizer.param_groups[0]["params"]
    for number in range(2):
        before = [parameter.detach().clone() for parameter in params]
        for parameter in params:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert not any(a.numel() and torch.equal(a, b) for a, b in zip(before, params))
    assert why in told(optimizer), told(optimizer)
assert launches() == []
# An option that is switched on later.
optimizer = torch.optim.SGD(leaves(), lr=0.1, momentum=0.9)
for dampening in (0, 0.5, 0):
    optimizer.param_groups[0]["dampening"] = dampening
    give(optimizer.param_groups[0]["params"], 1)
    optimizer.step()
    assert len(launches()) == (dampening == 0)
print("reached the end")
"""
    )


def test_a_refused_launch_leaves_the_step_to_torch(on_fake: Train) -> None:
    on_fake("""
for kind, options in (ADAMW, MOMENTUM):
    for failing in (0, 2):
        one, theirs = kind(leaves(), **options), kind(leaves(), **options)
        for number in range(4):
            for optimizer in (one, theirs):
                on_gpu(True)
                _device.is_capturing = lambda: optimizer is theirs
                fake.fake_cuda_set(b"cuLaunchKernel", 1 if number == failing else 0)
                give(optimizer.param_groups[0]["params"], number)
                optimizer.step()
        for p, q in zip(one.param_groups[0]["params"], theirs.param_groups[0]["params"]):
            assert torch.allclose(p, q, rtol=1e-5, atol=1e-6), (kind, failing)
            for key, value in theirs.state[q].items():
                assert torch.allclose(value, one.state[p][key], rtol=1e-5, atol=1e-6), (kind, failing, key)
print("reached the end")
""")


def test_what_fails_after_a_launch_is_not_stepped_again_by_torch(on_fake: Train) -> None:
    on_fake("""
from paceline.optim import _native
def fail(*_):
    raise RuntimeError("no room")
def many():
    return [torch.zeros(2, requires_grad=True) for _ in range(900)]  # three launches

mark = _native.mark_written
for broken, message in (("mark", "no room"), ("launch", "some tensors were updated")):
    params = many()
    optimizer = torch.optim.SGD(params, lr=1.0, momentum=0.9)
    for number in range(4):
        on_gpu(True)
        for parameter in params:
            parameter.grad = torch.ones(2)
        if number in (0, 2):
            _native.mark_written = fail if broken == "mark" else mark
            fake.fake_cuda_set(b"refused launch", 2 if broken == "launch" else 0)
            before = [parameter.detach().clone() for parameter in params]
            try:
                optimizer.step()
            except RuntimeError as error:
                assert message in str(error), error
            else:
                raise AssertionError("torch stepped again")
            updated = sum(not torch.equal(one, other) for one, other in zip(before, params))
            assert updated == (900 if broken == "mark" else 400), updated
            if number == 0:
                assert params[0].tolist() == [-1.0, -1.0], params[0]
            _native.mark_written = mark
        else:
            optimizer.step()
    # What fails before a launch is torch's still.
    optimizer._paceline_plan._settings.read = fail
    before = params[0].detach().clone()
    optimizer.step()
    assert not torch.equal(before, params[0]) and "RuntimeError: no room" in told(optimizer), told(optimizer)
print("reached the end")
""")


def test_the_default_device_counts_for_nothing(on_fake: Train) -> None:
    on_fake("""
if hasattr(torch, "set_default_device"):
    pairs = [(kind(leaves(), **options), kind(leaves(), **options)) for kind, options in KINDS]
    own = [paceline.optim.AdamW(leaves()), paceline.optim.AdamW(leaves())]
    for number in range(3):
        for one, other in [*pairs, own]:
            for optimizer in (one, other):
                on_gpu(optimizer is one)
                give(optimizer.param_groups[0]["params"], number)
                torch.set_default_device("meta")
                optimizer.step()
                torch.set_default_device("cpu")
            assert len(launches()) == 1, (type(one), told(one))
            compare(one, other)
print("reached the end")
""")


RANKS = """
if os.environ["RANK"] == os.environ.get("WITHOUT"):
    os.environ["PACELINE_KERNELS"] = "/nowhere"
dist.init_process_group("gloo")
assert not fake.fake_cuda_log(), "CUDA was started before the program did"
on_gpu(True)
optimizer = torch.optim.AdamW(leaves())
give(optimizer.param_groups[0]["params"], 1)
optimizer.step()
expected = "the ranks have not all found kernels" if "WITHOUT" in os.environ else "6 tensors fused on the GPU"
assert expected in told(optimizer), told(optimizer)
on_gpu(False)
give(optimizer.param_groups[0]["params"], 2)
optimizer.step()
assert "6 tensors fused on the CPU" in told(optimizer), told(optimizer)
print("reached the end")
dist.destroy_process_group()
"""


# A table that is built again in the third step finds no memory.
FAILING = """
from datetime import timedelta
from paceline._core import agreement
dist.init_process_group("gloo")
on_gpu(True)
class OutOfMemory(RuntimeError):
    pass
def fail(*_, **__):
    raise OutOfMemory
optimizer = torch.optim.AdamW(leaves())
params = optimizer.param_groups[0]["params"]
for number in range(4):
    give(params, number)
    if number == 2:
        if os.environ["FAILS"] == "1":  # the one agreement to which rank 0 does not come
            agreement.AGREEMENT_TIMEOUT = timedelta(seconds=2)
        optimizer.state[params[1]]["exp_avg"] = optimizer.state[params[1]]["exp_avg"].clone()
        fill = _device.fill
        if os.environ["RANK"] in os.environ["FAILS"]:
            _device.fill = fail
    optimizer.step()
    if number == 2:
        _device.fill = fill
        if "1" in os.environ["FAILS"] and os.environ["RANK"] == "1":
            print("rank 1 went on")
    sums = [p.detach().clone() for p in params]
    if os.environ["FAILS"] == "01":
        for own, other in zip(params, sums):
            dist.broadcast(other, 0)
            assert torch.equal(own, other)
if os.environ["FAILS"] == "1":
    dist.barrier()  # the next exchange of gradients
assert "6 tensors fused on the GPU" in told(optimizer), told(optimizer)
print("reached the end")
dist.destroy_process_group()
"""


def test_nothing_starts_the_driver_before_the_first_step_on_a_gpu(on_fake: Train) -> None:
    """A script may set CUDA_VISIBLE_DEVICES or fork after it has begun its process group."""
    on_fake(
        """
def started():
    return b"cuInit" in fake.fake_cuda_log()
on_gpu(False)
dist.init_process_group("gloo")
assert not started(), "init_process_group"
optimizer = torch.optim.AdamW(leaves())
assert not started(), "an optimizer"
give(optimizer.param_groups[0]["params"], 1)
optimizer.step()
assert "fused on the CPU" in told(optimizer) and not started(), "a step on the CPU"
child = os.fork()
if child == 0:
    os._exit(started())
assert os.waitpid(child, 0)[1] == 0
on_gpu(True)
optimizer = torch.optim.AdamW(leaves())
give(optimizer.param_groups[0]["params"], 1)
optimizer.step()
assert "fused on the GPU" in told(optimizer) and started(), told(optimizer)
print("reached the end")
dist.destroy_process_group()
""",
        ranks=2,
    )


def test_ranks_agree_on_their_gpus(on_fake: Train) -> None:
    on_fake(RANKS, ranks=2)


def test_one_rank_without_kernels_leaves_the_gpus_to_torch_on_all(on_fake: Train) -> None:
    on_fake(RANKS, ranks=2, WITHOUT="1")


def test_one_rank_whose_module_does_not_load_leaves_the_gpus_to_torch_on_all(
    on_fake: Train,
) -> None:
    on_fake(
        """
import contextlib, io
dist.init_process_group("gloo")
on_gpu(True)
if os.environ["RANK"] == "1":
    fake.fake_cuda_set(b"cuModuleLoadData", 200)
err = io.StringIO()
with contextlib.redirect_stderr(err):
    for optimizer in (torch.optim.AdamW(leaves()), torch.optim.SGD(leaves(), lr=0.1)):
        for number in range(2):
            give(optimizer.param_groups[0]["params"], number)
            optimizer.step()
        assert "6 by PyTorch (the ranks have not all found kernels for their GPUs)" in told(optimizer), told(optimizer)
said = err.getvalue()
assert said.count("PyTorch's own step runs on all ranks: ") == 1 and "CUDA_ERROR_INVALID_IMAGE" in said, said
print("reached the end")
dist.destroy_process_group()
""",
        ranks=2,
    )


def test_a_step_that_fails_on_one_rank_alone_ends_the_job(
    train_by_fork: Train, fake_device: dict[str, str]
) -> None:
    result = train_by_fork(BEGIN + FAILING, 2, FAILS="1", PACELINE_OPTIMIZER="Auto", **fake_device)
    assert result.code != 0, result.output
    assert "the fused step failed on rank 1 and not on all ranks (OutOfMemory" in result.output
    assert "rank 0 has not come" in result.output and "rank 1 went on" not in result.output


def test_a_step_that_fails_on_all_ranks_is_torchs_on_all(on_fake: Train) -> None:
    on_fake(FAILING, ranks=2, FAILS="01")


def test_without_a_module_everything_stays_torchs(on_fake: Train, tmp_path: Path) -> None:
    on_fake(
        """
on_gpu(True)
optimizer = torch.optim.AdamW(leaves())
give(optimizer.param_groups[0]["params"], 1)
optimizer.step()
assert "6 by PyTorch (no module in" in told(optimizer), told(optimizer)
assert launches() == []
print("reached the end")
""",
        PACELINE_KERNELS=str(tmp_path / "empty"),
    )
