# SPDX-License-Identifier: Apache-2.0
"""paceline.ops on a GPU, without one: the driver is a fake one that runs the kernels' own source
(fake_cuda/fake_cuda.cpp), and tensors that are taken for a GPU's lie on the CPU.
"""

from __future__ import annotations

import pytest
import torch
from fake_device import BEGIN
from programs import Train


def test_window_attention_is_that_of_float64(on_fake: Train) -> None:
    on_fake("""
for dtype in (torch.float16, torch.bfloat16):
    arguments = attention(dtype=dtype)
    on_gpu(True)
    assert _window.takes(*arguments)
    found = with_grads(*arguments)
    assert launches() == [
        "paceline_attention_forward", "paceline_attention_backward",
        "paceline_attention_bias", "paceline_attention_table",
    ]
    on_gpu(False)
    near(found, with_grads(*in_double(*arguments)), dtype)
    assert launches() == []
print("reached the end")
""")


def test_three_tensors_and_a_table_of_halves(on_fake: Train) -> None:
    on_fake("""
qkv, table, index, mask = attention()
on_gpu(True)
whole = with_grads(qkv, table, index, mask)
apart = [each.detach().requires_grad_() for each in qkv.unbind(2)]  # not dense
halves = table.detach().half().requires_grad_()
out = ops.window_attention(tuple(apart), halves, index.view(-1), mask)
weights = torch.linspace(-1, 1, out.numel()).view_as(out).half()
grads = torch.autograd.grad(out, [*apart, halves], weights)
assert grads[3].dtype is torch.float16
near([out, torch.stack(grads[:3], 2)], [each.double() for each in whole[:2]], torch.float16)
# Of what needs no gradient there is none.
out = ops.window_attention(qkv.detach(), table, index, mask)
out.sum().backward()
assert table.grad is not None
print("reached the end")
""")


def test_rows_that_are_masked_whole(on_fake: Train) -> None:
    on_fake("""
qkv, table, index, mask = attention(windows=2, tokens=9, heads=1)
mask[0, 3] = torch.finfo(torch.float32).min
arguments = qkv, table, index, mask
on_gpu(True)
found = with_grads(*arguments)
on_gpu(False)
near(found, with_grads(*in_double(*arguments)), torch.float16)
print("reached the end")
""")


def test_masks_that_are_no_numbers_are_as_in_pytorch(on_fake: Train) -> None:
    on_fake("""
inf, nan, least = float("inf"), float("nan"), torch.finfo(torch.float32).min
rows = {(nan,): True, (inf,): True, (-inf,): False, (nan,) * 9: True, (inf,) * 9: True}
rows.update({(-inf,) * 9: True, (least,) * 9: False, (-inf,) * 8 + (least,): False})
for row, is_lost in rows.items():
    qkv, table, index, mask = attention(windows=2, tokens=9, heads=1)
    mask[0, 3, : len(row)] = torch.tensor(row)
    on_gpu(True)
    out = ops.window_attention(qkv, table, index, mask).detach().float()
    assert launches() == ["paceline_attention_forward"]
    on_gpu(False)
    # In float32, as the kernels' scores are: in float64 the least number is only a large one.
    wanted = ops.window_attention(qkv.detach().float(), table, index, mask)
    assert out[0, 3].isnan().all() == is_lost and out.isnan().sum() == 32 * is_lost, row
    assert torch.allclose(out, wanted, atol=0.01, equal_nan=True), row
print("reached the end")
""")


def test_entries_before_and_behind_the_table(on_fake: Train) -> None:
    on_fake("""
qkv, table, index, mask = attention(windows=2, tokens=9, heads=2)
on_gpu(True)
wanted = with_grads(qkv, table, index, mask)
from_the_end = torch.where(index % 2 == 0, index - len(table), index)
assert (from_the_end < 0).any()
found = with_grads(qkv, table, from_the_end, mask)
assert all(torch.equal(one, other) for one, other in zip(found, wanted))
for entry in (len(table), -len(table) - 1, 2**62, -(2**62)):
    other = index.clone()
    other[4, 2] = entry
    out = ops.window_attention(qkv, table, other, mask)
    assert out[:, 4].isnan().all(), entry
    rest = torch.arange(9) != 4
    assert torch.equal(out[:, rest], wanted[0][:, rest])
print("reached the end")
""")


def test_views_that_lie_anywhere(on_fake: Train) -> None:
    on_fake("""
qkv, table, index, mask = attention(windows=1, tokens=9, heads=1, masks=1)
on_gpu(True)
whole = ops.window_attention(qkv, table, index, mask)
flat = torch.cat((torch.zeros(1).half(), qkv.detach().flatten()))
odd = flat[1:].view_as(qkv)
assert odd.data_ptr() % 16 != 0
assert torch.equal(ops.window_attention(odd, table, index, mask), whole)
strange = torch.as_strided(qkv.detach(), qkv.shape, (1, *qkv.stride()[1:]))
assert strange.is_contiguous()
assert torch.equal(ops.window_attention(strange, table, index, mask), whole)
joined = torch.cat((torch.zeros(1).half(), whole.flatten()))  # its gradient is such a view
weights = torch.linspace(-1, 1, joined.numel()).half()
(grad,) = torch.autograd.grad(joined, qkv, weights, retain_graph=True)
(wanted,) = torch.autograd.grad(whole, qkv, weights[1:].clone().view_as(whole))
assert torch.equal(grad, wanted)
print("reached the end")
""")


@pytest.mark.skipif(not hasattr(torch, "func"), reason="no torch.func")
def test_transforms_are_pytorchs(on_fake: Train) -> None:
    on_fake("""
qkv, table, index, mask = attention(windows=2, tokens=9, dtype=torch.float32)
on_gpu(True)
_device.TYPES = {torch.float32: 0}  # PyTorch has few operations for halves on the CPU
assert _window.takes(qkv, table, index, mask)
def call(qkv):
    assert not _window.takes(qkv, table, index, mask)
    return ops.window_attention(qkv, table, index, mask)
torch.func.vmap(call)(qkv.detach()[None])
torch.func.jvp(call, (qkv.detach(),), (qkv.detach(),))
assert launches() == []
print("reached the end")
""")


def test_a_second_backward_is_pytorchs(on_fake: Train) -> None:
    on_fake("""
def penalty(qkv, table, index, mask):
    out = ops.window_attention(qkv, table, index, mask)
    (grad,) = torch.autograd.grad(out, qkv, torch.ones_like(out), create_graph=True)
    return torch.autograd.grad(grad.double().square().sum(), table)[0].double()

arguments = attention(windows=2, tokens=9, heads=1, dtype=torch.bfloat16)
on_gpu(True)
found = penalty(*arguments)
assert launches() == ["paceline_attention_forward"]
on_gpu(False)
wanted = penalty(*in_double(*arguments))
assert (found - wanted).abs().max() < 0.1 * wanted.abs().max(), (found, wanted)
print("reached the end")
""")


def test_what_the_kernels_do_not_take_is_pytorchs(on_fake: Train) -> None:
    on_fake("""
on_gpu(True)
qkv, table, index, mask = attention(windows=2, tokens=65, heads=1, masks=0)
wide = torch.randn(2, 9, 3, 1, 64).half(), torch.randn(17, 1), torch.zeros(9, 9).long(), None
whole = attention(windows=2, tokens=9, dtype=torch.float32)
learned = attention(windows=2, tokens=9)
learned = (*learned[:3], learned[3].requires_grad_())
short = attention(windows=2, tokens=9, masks=0)
short = (*short[:2], short[2].int(), None)
empty = attention(windows=0, tokens=9, masks=0)
for arguments in ((qkv, table, index, mask), wide, whole, learned, short, empty):
    assert not _window.takes(*arguments)
    if arguments[0].dtype is torch.float32:  # PyTorch has few operations for halves on the CPU
        ops.window_attention(*arguments)
assert launches() == []
print("reached the end")
""")


def test_targets_and_assignments_are_the_cpus(on_fake: Train) -> None:
    on_fake("""
torch.manual_seed(5)
ys, xs = torch.meshgrid(torch.arange(12), torch.arange(16), indexing="ij")
points = [torch.stack((xs.flatten(), ys.flatten()), 1).float() * 8 + 4]
centers = torch.rand(6, 2) * 100
boxes = torch.cat((centers - torch.rand(6, 2) * 40, centers + torch.rand(6, 2) * 40), 1)
labels = torch.randint(0, 5, (6,))
head = ops.FCOS3DHead(strides=[8], regress_ranges=[(-1, 48)])
priors = torch.cat((points[0], torch.full_like(points[0], 8)), 1)
predicted = torch.cat((points[0] - torch.rand(192, 2) * 30, points[0] + torch.rand(192, 2) * 30), 1)
scores = torch.rand(2, 192, 5)

def both():
    targets = ops.fcos3d_targets(
        points, [0, 2, 2, 6], centers, torch.rand(6), boxes, torch.ones(6, 9), labels, head=head
    )
    images = torch.stack((predicted, predicted + 3))
    assigned = ops.simota_assign(images, scores, priors, [0, 4, 6], boxes, labels)
    return [*(level for field in targets for level in field), *assigned]

torch.manual_seed(1)
on_gpu(True)
found = both()
assert launches() == [
    "paceline_fcos3d_targets",
    "paceline_simota_priors", "paceline_simota_match", "paceline_simota_write",
]
torch.manual_seed(1)
on_gpu(False)
wanted = both()
assert (found[0] < 10).any() and (found[-3] >= 0).any()
assert all(torch.equal(one, other) for one, other in zip(found, wanted))
print("reached the end")
""")


DETECTION = """
torch.manual_seed(5)
ys, xs = torch.meshgrid(torch.arange(6), torch.arange(8), indexing="ij")
points = [torch.stack((xs.flatten(), ys.flatten()), 1).float() * 8 + 4] * 2
centers = torch.rand(6, 2) * 50
boxes = torch.cat((centers - 9, centers + 9), 1)
labels, attributes = torch.randint(0, 5, (6,)), torch.randint(0, 5, (6,))
rows = [centers, torch.rand(6), boxes, torch.ones(6, 9), labels, attributes]
priors = torch.cat((points[0], torch.full_like(points[0], 8)), 1)
predicted = torch.cat((points[0] - 9, points[0] + 9), 1).repeat(2, 1, 1)
scores = torch.rand(2, 48, 5)

def head(background=10):
    return ops.FCOS3DHead(
        strides=[8, 16], regress_ranges=[(-1, 48), (48, 96)], background_label=background
    )

def targets(background=10):
    return ops.fcos3d_targets(points, [0, 2, 6], *rows, head=head(background))

def assigned():
    return ops.simota_assign(predicted, scores, priors, [0, 2, 6], boxes, labels)
"""


def test_what_pytorch_is_asked_for_a_call(on_fake: Train) -> None:
    """Each of these calls costs the host, and is the larger part of what the operators cost it."""
    on_fake(
        f"{DETECTION}\non_gpu(True)\n"
        + """
from collections import Counter
from torch.overrides import TorchFunctionMode

class Count(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = Counter()
    def __torch_function__(self, call, types, args=(), kwargs=None):
        self.calls[call.__name__] += 1
        return call(*args, **(kwargs or {}))

def asked(call):
    call()
    with Count() as mode:
        call()
    tells = {"__get__", "data_ptr", "element_size", "is_floating_point", "is_complex"}
    tells |= {"is_contiguous", "contiguous"}
    return {name: count for name, count in mode.calls.items() if name not in tells}

levels = 2
yaw = {"cat": 1, "atan2": 1, "sub_": 1, "select": 3, "narrow": 1, "unsqueeze": 1}
assert asked(targets) == {"new_empty": 4 * levels, **yaw}, asked(targets)
assert asked(assigned) == {"new_empty": 4}, asked(assigned)
qkv, table, index, mask = attention()
still = qkv.detach(), table.detach(), index, mask
found = asked(lambda: ops.window_attention(*still))
assert found == {"new_empty": 1}, found
print("reached the end")
"""
    )


def test_threads_with_heads_of_their_own(on_fake: Train) -> None:
    on_fake(
        f"{DETECTION}\non_gpu(True)\n"
        + """
found = {}
def work(background):
    found[background] = [targets(background).labels_3d[0].max() for _ in range(200)]
threads = [threading.Thread(target=work, args=(100 + i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 4
assert all(int(each) == background for background, all in found.items() for each in all)
print("reached the end")
"""
    )


def test_attention_without_gradients_has_no_graph(on_fake: Train) -> None:
    on_fake("""
qkv, table, index, mask = attention()
on_gpu(True)
learned = ops.window_attention(qkv, table, index, mask)
assert learned.grad_fn is not None
with torch.no_grad():
    out = ops.window_attention(qkv, table, index, mask)
still = ops.window_attention(qkv.detach(), table.detach(), index, mask)
for each in (out, still):
    assert not each.requires_grad and torch.equal(each, learned)
assert ops.window_attention(qkv.detach(), table, index, mask).requires_grad
print("reached the end")
""")


def test_a_refused_launch_is_an_error(on_fake: Train) -> None:
    on_fake("""
on_gpu(True)
assert _window.takes(*attention())
fake.fake_cuda_set(b"cuLaunchKernel", 719)
try:
    ops.window_attention(*attention())
except RuntimeError as error:
    assert "the driver refused a launch" in str(error), error
    print("reached the end")
""")


def test_without_kernels_pytorch_computes_and_says_why(
    train_by_fork: Train, fake_device: dict[str, str]
) -> None:
    result = train_by_fork(
        BEGIN
        + """
on_gpu(True)
arguments = attention(windows=2, tokens=9, heads=1)
assert not _window.takes(*arguments) and not _window.takes(*arguments)
""",
        **{**fake_device, "PACELINE_KERNELS": "/nowhere"},
    )
    assert result.code == 0, result.output
    assert result.output.count("ops.window_attention runs in plain PyTorch: ") == 1, result.output
    assert "/nowhere" in result.output
