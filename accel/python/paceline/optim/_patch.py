# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own Adam, AdamW and SGD updated by the library, in programs that do not know Paceline.
Off unless the job asks for it by PACELINE_OPTIMIZER=Auto, and PACELINE_NUMERICS is not Bitwise:
results differ from PyTorch's by rounding (class Reordered). An optimizer that the program gives to
`paceline.accelerate` is updated so in any case.

`step` of the classes is replaced in place: instances, their types, state and checkpoints stay
PyTorch's. A step is ours if all parameters of the optimizer are float32, bfloat16 or float16
tensors, or shards of such, on the CPU or on one GPU that has kernels. No option may ask for
something else. Otherwise the original runs. An option that this release does not know may mean
anything, so an optimizer that sets one is PyTorch's.

Of ranks that train together all use it, or none (_ranks.py).
"""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from typing import Any, Callable

import torch

from paceline._core import contract
from paceline._core.imports import after_import
from paceline._core.log import say
from paceline._core.marks import optimizer_made
from paceline._core.switches import why_off
from paceline.optim import (
    _device,
    _native,
    _patch_device,
    _patch_host,
    _ranks,
    _report,
    _torch_state,
)
from paceline.optim._fused import Fused
from paceline.optim._native import Table, Tensor

KINDS = ("Adam", "AdamW", "SGD")
# The options whose meaning the library knows.
_KNOWN = {
    *("self", "params", "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach"),
    *("capturable", "differentiable", "fused", "decoupled_weight_decay"),
    *("momentum", "dampening", "nesterov"),
}

# Classes that are left alone for a reason of their own.
_LEFT = {
    "Muon": "its step is matrix products, which PyTorch's own operations make as quickly",
}

GIVEN = "on (for those given to paceline.accelerate)"
_everywhere = False  # False: only optimizers that were given to paceline.accelerate
_undo: list[Callable[[], None]] = []


def wanted() -> str:
    """Returns an empty text if the job asks for it, else why not."""
    return why_off(contract.OPTIMIZER, "PyTorch's optimizers are", "fused optimizers")


def install() -> None:
    global _everywhere
    _report.switch = wanted()
    if _report.switch:
        return
    patched = _patch_all()
    _everywhere = bool(patched)
    _report.switch = (
        f"on for {', '.join(patched)}"
        if patched
        else "off (a PyTorch that this release was not tested with)"
    )


def _patch_all() -> list[str]:
    """Puts our step into PyTorch's classes, once. Returns their names."""
    if not _patched:
        _patched.extend(name for name in KINDS if _patch(getattr(torch.optim, name)))
        if _patched:
            _plain.clear()
            optimizer_made.append(_made)
            _undo.append(functools.partial(optimizer_made.remove, _made))
            after_import(
                "torch.distributed.distributed_c10d",
                lambda module: _undo.extend(_ranks.watch(module)),
            )
    return _patched


def accelerate(optimizer: Any) -> str:
    """Has the library update this optimizer's parameters. Returns why it cannot, or an empty text.
    If ranks train together, all of them call this.
    """
    outcome = _report.outcome_of(optimizer)
    if isinstance(optimizer, Fused):
        return ""  # it is already
    why = _why_never(optimizer) or _native.why_unavailable()
    if not why and not any(
        isinstance(optimizer, getattr(torch.optim, name)) for name in _patch_all()
    ):
        why = "a PyTorch that this release was not tested with"
    if not why and not _leads_to_ours(optimizer.step):
        why = "its class or the program has replaced its step"
    outcome.never = why
    if not why:
        optimizer._paceline_optimizer = True
        if not _report.switch.startswith("on"):
            _report.switch = GIVEN
    _ranks.agree_once()
    return why


def uninstall() -> None:
    """Puts the originals back."""
    global _everywhere
    while _undo:
        _undo.pop()()
    _everywhere = False
    _patched.clear()
    _steps.clear()
    _plain.clear()
    _report.switch = "off (uninstalled)"


# -- the step
# ------------------------------------------------------------


def _patch(kind: Any) -> bool:
    missing = {"params", "lr", "weight_decay"} - set(inspect.signature(kind.__init__).parameters)
    if missing:
        say(f"torch.optim.{kind.__name__} is left as it is: it has no argument {missing.pop()}")
        return False
    if "step" not in kind.__dict__:
        return True  # the class inherits a step, which is replaced in the other class

    # Once the class has had an instance, PyTorch's profiling is around the step, and our marks are
    # around that. Our step goes inside of both. So a learning-rate schedule that holds the outer
    # one reaches it too.
    holder, original = None, kind.step
    while getattr(original, "hooked", False):
        holder, original = original, original.__wrapped__
    cell = _cell_of(holder, original)
    if holder is not None and cell is None:
        say(f"torch.optim.{kind.__name__} is left as it is: its step is wrapped in an unknown way")
        return False
    compiler = getattr(torch, "compiler", None)
    compiling = getattr(compiler, "is_compiling", None) or (lambda: False)

    @functools.wraps(original)
    def step(self: Any, closure: Callable[[], Any] | None = None, **unknown: Any) -> Any:
        if compiling() or unknown or not (_everywhere or _given(self)) or not _is_ours(self):
            return original(self, closure, **unknown)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not _update(self):
            original(self)
        return loss

    _steps.append(step)
    if holder is None:
        kind.step = step
        _undo.append(functools.partial(setattr, kind, "step", original))
    else:
        cell.cell_contents, holder.__wrapped__ = step, step
        _undo.append(functools.partial(setattr, cell, "cell_contents", original))
        _undo.append(functools.partial(setattr, holder, "__wrapped__", original))
    return True


def _cell_of(holder: Any, held: Any) -> Any:
    """Returns the cell in which a wrapper keeps the function that it calls."""
    return next(
        (cell for cell in getattr(holder, "__closure__", None) or () if cell.cell_contents is held),
        None,
    )


def _given(optimizer: Any) -> bool:
    return getattr(optimizer, "_paceline_optimizer", False)


_steps: list[Any] = []  # our functions in the place of PyTorch's
_patched: list[str] = []  # classes


def _made(optimizer: Any) -> None:
    """Notes an optimizer, so that explain() does not leave it out though its step is never ours."""
    if _everywhere and not isinstance(optimizer, Fused):
        outcome = _report.outcome_of(optimizer)
        outcome.never = _why_never(optimizer) or (
            "" if _is_ours(optimizer) else "its class has a step of its own"
        )


def _why_never(optimizer: Any) -> str:
    known = tuple(getattr(torch.optim, name) for name in KINDS)
    if not isinstance(optimizer, known):
        return _LEFT.get(type(optimizer).__name__, "no fused step for this class")
    return _unknown_option(type(optimizer), optimizer.defaults)


@functools.cache
def _unknown_options(kind: Any) -> dict[str, Any]:
    """Returns the options of PyTorch's class that the library does not know, with their defaults.
    A subclass's own options are the subclass's.
    """
    torchs: Any = next(base for base in kind.__mro__ if base.__module__.startswith("torch.optim"))
    return {
        name: option.default
        for name, option in inspect.signature(torchs.__init__).parameters.items()
        if name not in _KNOWN
    }


def _unknown_option(kind: Any, group: dict[str, Any]) -> str:
    """Returns why a group is PyTorch's if it sets such an option, or an empty text."""
    for name, default in _unknown_options(kind).items():
        if name in group and group[name] is not default and group[name] != default:
            return f"{name}={group[name]!r}, an option that this release does not know"
    return ""


def _leads_to_ours(step: Any) -> bool:
    while step not in _steps and getattr(step, "__wrapped__", None) is not None:
        step = step.__wrapped__
    return step in _steps


_plain: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _is_ours(optimizer: Any) -> bool:
    """Whether the optimizer's own step is one of ours. A subclass that overrides it may depend on
    what PyTorch's step does.
    """
    kind: Any = type(optimizer)
    plain = _plain.get(kind)
    if plain is None:
        plain = _plain[kind] = _leads_to_ours(kind.step)
    return plain


_said: set[str] = set()


def _update(optimizer: Any) -> bool:
    """Whether the step was made. If something fails before it, PyTorch makes the step; of several
    ranks, on all of them or on none.
    """
    began = time.perf_counter()
    _ranks.agree_at_first_step()
    _ranks.Agreement.steps += 1
    outcome = _report.outcome_of(optimizer)
    outcome.elsewhere = {}
    outcome.fused = 0
    table = Table()
    try:
        count, where, why = _by_us(table, optimizer)
    except Exception as error:
        if table.done:
            raise
        _ranks.agree_on_failure(error)
        count, where, why = len(_with_gradient(optimizer)), "", f"{type(error).__name__}: {error}"
        if why not in _said:
            _said.add(why)
            say(f"PyTorch's own step runs instead: {why}")
    if why:
        outcome.elsewhere[why] = count
        return False
    outcome.fused, outcome.where = count, where
    outcome.is_chosen = where == "the CPU" and any(g.get("fused") for g in optimizer.param_groups)
    outcome.stepped(time.perf_counter() - began)
    return True


def _by_us(table: Table, optimizer: Any) -> tuple[int, str, str]:
    """Makes the step. Returns how many tensors have a gradient, where they are, and why the step is
    left to PyTorch; empty if it was made.
    """
    why = _native.why_unavailable() or _torch_state.why_not_scaled(optimizer)
    kind: Any = type(optimizer)
    if not why and _unknown_options(kind):
        why = next(filter(None, (_unknown_option(kind, g) for g in optimizer.param_groups)), "")
    if not why and not _ranks.why_refused(True):
        count = _patch_device.step_again(table, optimizer)
        if count:
            return count, "the GPU", ""
    if not why and not _ranks.why_refused(False):
        count = _patch_host.step_again(table, optimizer)
        if count:
            return count, "the CPU", ""
    found = _with_gradient(optimizer)
    on_device = bool(found) and found[0][1].device.type == _device.KIND
    if on_device and not why:
        _ranks.agree_on_device(_device.why_unavailable(_device.index_of(found[0][1].device)))
    why = why or _ranks.why_refused(on_device)
    if not why and found:
        with torch.no_grad():
            why = (_patch_device if on_device else _patch_host).step(table, optimizer, found)
    return len(found), "the GPU" if on_device else "the CPU", why


def _with_gradient(optimizer: Any) -> list[tuple[dict[str, Any], Tensor]]:
    return [
        (group, p)
        for group in optimizer.param_groups
        for p in group["params"]
        if p.grad is not None
    ]
