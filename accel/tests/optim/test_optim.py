# SPDX-License-Identifier: Apache-2.0
"""paceline.optim against torch in fp64, over steps enough for a wrong coefficient to show; tensors
of every shape and layout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(
    0,
    str(
        Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
        / "runtime"
        / "python"
    ),
)
from paceline import optim  # noqa: E402 - where it lies is known only now
from paceline.optim import _native, _report  # noqa: E402

STEPS = 120
torch.set_num_threads(1)  # tensors are small here, and waiting threads of torch's spin

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.1, "lr": 1e-2}),
    ("AdamW", {"maximize": True, "betas": (0.5, 0.9)}),
    ("Adam", {}),
    ("Adam", {"weight_decay": 0.1, "betas": (0.0, 0.99), "eps": 1e-6}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("SGD", {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.01, "momentum": 0.8, "dampening": 0.3, "maximize": True}),
    ("LAMB", {}),
    ("LAMB", {"adapt": False, "weight_decay": 0.1, "maximize": True}),
    ("LARS", {"lr": 0.1, "weight_decay": 1e-3}),
    ("LARS", {"lr": 0.1, "nesterov": True, "trust_coefficient": 0.02}),
    ("LARS", {"lr": 0.01, "adapt": False, "momentum": 0.0}),
]


def gaps() -> torch.Tensor:
    """A leaf that fills every second place of its memory."""
    return torch.randn(9, 14)[:, ::2]


MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "odd": lambda: torch.randn(61, 37),
    "large": lambda: torch.randn(40_001),
    "empty": lambda: torch.randn(0, 5),
    "scalar": lambda: torch.randn(()),
    "one": lambda: torch.randn(1, 1, 1),
    "transposed": lambda: torch.randn(13, 17).t(),
    "channels last": lambda: torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last),
    "gaps": gaps,
}


def leaves() -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [make().requires_grad_() for make in MAKERS.values()]


def reference_class(name: str) -> Any:
    """torch's, where it has one; else ours, which has float64 updated by torch operations."""
    return getattr(torch.optim, name, None) or getattr(optim, name)


def give_gradients(params: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    for i, (one, other) in enumerate(zip(params, others)):
        grad = torch.randn(one.shape)
        if i % 3 == 2:  # not as the parameter lies
            grad = torch.randn(tuple(reversed(one.shape))).permute(*reversed(range(one.dim())))
        one.grad = grad.to(one.dtype)
        other.grad = one.grad.to(other.dtype)


def distance(params: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    return max(
        float((one.detach().double() - other.detach().double()).abs().max())
        for one, other in zip(params, others)
        if one.numel()
    )


@pytest.mark.parametrize("name,options", VARIANTS, ids=lambda value: str(value))
def test_it_follows_fp64_as_closely_as_torch_does(name: str, options: dict[str, Any]) -> None:
    ours = leaves()
    exact = [leaf.detach().double().requires_grad_() for leaf in ours]
    torchs = [leaf.detach().clone().requires_grad_() for leaf in ours]
    optimizers = [
        getattr(optim, name)(ours, **options),
        reference_class(name)(exact, **options),
    ]
    if hasattr(torch.optim, name):
        optimizers.append(reference_class(name)(torchs, **options))
    for _ in range(STEPS):
        give_gradients(ours, exact)
        for one, other in zip(torchs, ours):
            one.grad = other.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    outcome = _report.outcome_of(optimizers[0])
    assert outcome.fused == len(MAKERS) and not outcome.elsewhere
    ours_off = distance(ours, exact)
    if hasattr(torch.optim, name):
        assert ours_off <= 1.5 * distance(torchs, exact) + 1e-6
    assert 0 < ours_off < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name,options", VARIANTS, ids=lambda value: str(value))
def test_a_sixteen_bit_parameter_has_a_master_in_float32(
    name: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    ours = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves()]
    exact = [leaf.detach().double().requires_grad_() for leaf in ours]
    optimizer = getattr(optim, name)(ours, **options)
    reference = reference_class(name)(exact, **options)
    for _ in range(STEPS):
        give_gradients(ours, exact)
        optimizer.step()
        reference.step()
    masters = [optimizer.state[leaf]["master_param"] for leaf in ours]
    assert all(master.dtype is torch.float32 for master in masters)
    assert distance(masters, exact) < 1e-4
    assert all(torch.equal(leaf.detach(), master.to(dtype)) for leaf, master in zip(ours, masters))
    states = [
        value for leaf in ours for value in optimizer.state[leaf].values() if value is not None
    ]
    assert all(value.dtype is torch.float32 for value in states)


def test_without_a_master_the_parameter_is_all_there_is() -> None:
    leaf = torch.randn(100).to(torch.bfloat16).requires_grad_()
    expected = leaf.detach().clone()
    optimizer = optim.SGD([leaf], lr=0.1, master_weights=False)
    for _ in range(3):
        leaf.grad = torch.randn(100).to(torch.bfloat16)
        expected = (expected.float() - 0.1 * leaf.grad.float()).to(torch.bfloat16)
        optimizer.step()
    assert "master_param" not in optimizer.state[leaf] and torch.equal(leaf.detach(), expected)


def test_what_the_program_writes_into_a_parameter_counts() -> None:
    leaf = torch.randn(50).to(torch.bfloat16).requires_grad_()
    optimizer = optim.SGD([leaf], lr=1e-4)
    leaf.grad = torch.ones_like(leaf)
    for _ in range(5):
        optimizer.step()
    kept = optimizer.state[leaf]["master_param"].clone()
    with torch.no_grad():
        leaf[:10] = 7.0
    optimizer.step()
    master = optimizer.state[leaf]["master_param"]
    assert torch.equal(master[:10], torch.full((10,), 7.0) - 1e-4)
    assert torch.equal(master[10:], kept[10:] - 1e-4), (
        "what was left alone keeps what bfloat16 does not show"
    )


def test_parameters_without_a_gradient_do_not_advance() -> None:
    first, second = torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_()
    optimizer = optim.AdamW([first, second])
    for number in range(4):
        first.grad = torch.randn(3)
        second.grad = torch.randn(3) if number == 2 else None
        before = second.detach().clone()
        optimizer.step()
        assert torch.equal(before, second.detach()) == (number != 2)
    assert (float(optimizer.state[first]["step"]), float(optimizer.state[second]["step"])) == (4, 1)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD", "LAMB", "LARS"])
def test_sparse_gradients_are_refused(name: str) -> None:
    table = torch.nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    optimizer = getattr(optim, name)(table.parameters(), lr=0.1)
    with pytest.raises(
        RuntimeError,
        match=r"parameter 0 of group 0 has a gradient of layout torch.sparse_coo.*SparseAdam",
    ):
        optimizer.step()


def test_torch_updates_what_the_library_does_not() -> None:
    options: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}
    kinds = (torch.float32, torch.float64, torch.complex64)
    ours = [torch.randn(5, dtype=kind).requires_grad_() for kind in kinds]
    torchs = [leaf.detach().clone().requires_grad_() for leaf in ours]
    optimizer, reference = optim.AdamW(ours, **options), torch.optim.AdamW(torchs, **options)
    for _ in range(10):
        for one, other in zip(ours, torchs):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        optimizer.step()
        reference.step()
    assert torch.equal(ours[1], torchs[1]) and torch.equal(ours[2], torchs[2])
    assert torch.allclose(ours[0], torchs[0], atol=1e-6)
    outcome = _report.outcome_of(optimizer)
    assert outcome.fused == 1
    assert outcome.elsewhere == {
        "float64 gradients of float64 parameters": 1,
        "complex64 gradients of complex64 parameters": 1,
    }
    assert (
        "paceline.optim.AdamW: 1 tensors fused on the CPU, class Reordered; 1 by PyTorch"
        in "\n".join(_report.lines())
    )


def test_a_master_that_cannot_be_kept_is_refused() -> None:
    leaf = torch.zeros(3, dtype=torch.bfloat16, device="meta", requires_grad=True)
    leaf.grad = torch.zeros_like(leaf)
    with pytest.raises(
        RuntimeError,
        match=r"parameter 0 of group 0 is torch.bfloat16.*on meta.*master_weights=False",
    ):
        optim.SGD([leaf], lr=0.1).step()


@pytest.mark.parametrize("extra", [[], [torch.float64]], ids=["all fused", "one by torch"])
def test_clipping_is_torchs(extra: list[torch.dtype]) -> None:
    kinds = [torch.float32, torch.float32, *extra]
    ours = [torch.randn(30_000 + i, dtype=kind).requires_grad_() for i, kind in enumerate(kinds)]
    torchs = [leaf.detach().clone().requires_grad_() for leaf in ours]
    optimizer = optim.SGD(ours, lr=0.1, momentum=0.9, max_grad_norm=2.0)
    reference = torch.optim.SGD(torchs, lr=0.1, momentum=0.9)
    for scale in (1.0, 1e-4):
        for one, other in zip(ours, torchs):
            one.grad = torch.randn_like(one) * scale
            other.grad = one.grad.clone()
        optimizer.step()
        norm = torch.nn.utils.clip_grad_norm_(torchs, 2.0)
        reference.step()
        assert optimizer.grad_norm == pytest.approx(float(norm), rel=1e-5)
        assert distance(ours, torchs) < 1e-6
    with pytest.raises(ValueError, match="max_grad_norm is 0"):
        optim.SGD(ours, lr=0.1, max_grad_norm=0)


def test_autograd_sees_that_parameters_changed() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    inside = torch.randn(4, requires_grad=True)
    optimizer = optim.AdamW([weight])
    out = (weight @ inside).sum()
    weight.grad = torch.ones_like(weight)
    version = weight._version
    optimizer.step()
    assert weight._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_threads_are_torchs_and_change_no_bit() -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(1)
            leaf = torch.randn(2_000_003).requires_grad_()
            leaf.grad = torch.randn(2_000_003)
            optim.LAMB([leaf], max_grad_norm=1.0).step()
            results.append(leaf.detach())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_arrays_of_words_are_as_the_header_says() -> None:
    assert _native.Group.grad_multiplier.offset == 80
    assert _native.functions().simd in ("avx512", "avx2", "scalar")
