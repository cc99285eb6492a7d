# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own Adam, AdamW and SGD updated by the library, in programs that do not know Paceline. Off unless the job asks:

PACELINE_OPTIMIZER=Auto   and PACELINE_NUMERICS not Bitwise: results differ from PyTorch's by rounding (class Reordered).

An optimizer given to `paceline.accelerate` is updated so in any case.

`step` of the classes is replaced in place: instances, their types, state and checkpoints stay PyTorch's. A step is ours if all of
the optimizer's parameters are float32 tensors on the CPU and no option asks for something else; otherwise the original
runs. Only for classes whose arguments are those of a tested PyTorch.

Ranks that train together use it all, or none (_ranks.py).
"""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any, Callable

import torch

from paceline import _torch_marks
from paceline._inject import after_import, say
from paceline._switch import why_off
from paceline.optim import _native, _ranks, _report
from paceline.optim._fused import Fused
from paceline.optim._native import Table, Tensor
from paceline.optim._torch_like import adam_group, sgd_group

_ADAM = {"params", "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable"}
_SGD = {"params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable"}
# Arguments of __init__ in 1.13 and 2.14: an unknown one may mean anything.
TESTED: dict[str, list[set[str]]] = {
    "Adam": [
        _ADAM | {"differentiable", "fused"},
        _ADAM | {"differentiable", "fused", "decoupled_weight_decay"},
    ],
    "AdamW": [_ADAM, _ADAM | {"differentiable", "fused"}],
    "SGD": [_SGD, _SGD | {"fused"}],
}
_KEEPS_AN_EMPTY_BUFFER = int(torch.__version__.split(".")[0]) < 2  # SGD without momentum

GIVEN = "on (for those given to paceline.accelerate)"
_everywhere = False  # else only what was given to paceline.accelerate
_undo: list[Callable[[], None]] = []


def wanted() -> str:
    """Empty where the job asks for it; else why not."""
    return why_off("PACELINE_OPTIMIZER", "PyTorch's optimizers are", "fused optimizers")


def install() -> None:
    global _everywhere
    _report.switch = wanted()
    if _report.switch:
        return
    patched = _patch_all()
    _everywhere = bool(patched)
    _report.switch = (
        f"on for {', '.join(patched)}" if patched else "off (a PyTorch that this release was not tested with)"
    )


def _patch_all() -> list[str]:
    """Puts our step into PyTorch's classes, once. Answers which."""
    if not _patched:
        _patched.extend(name for name in TESTED if _patch(getattr(torch.optim, name)))
        if _patched:
            _plain.clear()
            _torch_marks.optimizer_made.append(_made)
            _undo.append(functools.partial(_torch_marks.optimizer_made.remove, _made))
            after_import("torch.distributed.distributed_c10d", lambda module: _undo.extend(_ranks.watch(module)))
    return _patched


def accelerate(optimizer: Any) -> str:
    """Has this one updated by the library where it can. Answers why not, empty where it will be. Where ranks train together, all
    call it."""
    outcome = _report.outcome_of(optimizer)
    if isinstance(optimizer, Fused):
        return ""  # it is already
    why = _why_never(optimizer) or _native.why_unavailable()
    if not why and not any(isinstance(optimizer, getattr(torch.optim, name)) for name in _patch_all()):
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


# -- the step ----------------------------------------------------------------------------------------------------------


def _patch(kind: Any) -> bool:
    known = set(inspect.signature(kind.__init__).parameters) - {"self"}
    if known not in TESTED[kind.__name__]:
        say(f"torch.optim.{kind.__name__} is left as it is: its arguments are not those of a tested PyTorch")
        return False
    if "step" not in kind.__dict__:
        return True  # inherits a step that is replaced where it is
    # Once the class has had an instance, PyTorch's profiling is around the step, and our marks around that: ours goes inside, so
    # that whoever has got hold of the outer one (a learning-rate schedule) reaches it as well.
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
    """Where a wrapper keeps the function that it calls."""
    return next((cell for cell in getattr(holder, "__closure__", None) or () if cell.cell_contents is held), None)


def _given(optimizer: Any) -> bool:
    return getattr(optimizer, "_paceline_optimizer", False)


_steps: list[Any] = []  # that took the place of PyTorch's
_patched: list[str] = []  # classes


def _made(optimizer: Any) -> None:
    """Notes an optimizer, so that explain() does not leave it out though its step is never ours."""
    if _everywhere and not isinstance(optimizer, Fused):
        outcome = _report.outcome_of(optimizer)
        outcome.never = _why_never(optimizer) or ("" if _is_ours(optimizer) else "its class has a step of its own")


def _why_never(optimizer: Any) -> str:
    known = tuple(getattr(torch.optim, name) for name in TESTED)
    return "" if isinstance(optimizer, known) else "no fused step for this class"


def _leads_to_ours(step: Any) -> bool:
    while step not in _steps and getattr(step, "__wrapped__", None) is not None:
        step = step.__wrapped__
    return step in _steps


_plain: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _is_ours(optimizer: Any) -> bool:
    """Whether the optimizer's own step is one of ours. A subclass that overrides it may count on what torch's does."""
    kind: Any = type(optimizer)
    plain = _plain.get(kind)
    if plain is None:
        plain = _plain[kind] = _leads_to_ours(kind.step)  # the profiler's hook and our marks are wrapped around
    return plain


def _is_adam(optimizer: Any) -> bool:
    return isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW))


_said: set[str] = set()


def _update(optimizer: Any) -> bool:
    """Whether the step was made. Whatever goes wrong before it leaves it to torch."""
    outcome = _report.outcome_of(optimizer)
    outcome.elsewhere = {}
    outcome.fused = 0
    found = [(group, p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    table = Table()
    try:
        why = _native.why_unavailable() or _ranks.why_refused()
        why = why or next(filter(None, (_why_not(optimizer, group, parameter) for group, parameter in found)), "")
        if not why and found:
            with torch.no_grad():
                _fill_and_step(optimizer, table, found)
    except Exception as error:
        if table.done:
            raise
        why = f"{type(error).__name__}: {error}"
        if why not in _said:
            _said.add(why)
            say(f"PyTorch's own step runs instead: {why}")
    if why:
        outcome.elsewhere[why] = len(found)
        return False
    outcome.fused = len(found)
    return True


def _fill_and_step(optimizer: Any, table: Table, found: list[tuple[dict[str, Any], Tensor]]) -> None:
    previous = None
    buffers: list[tuple[dict[str, Any], Tensor]] = []
    for group, parameter in found:
        if group is not previous:
            _add_group(optimizer, table, group)
            previous = group
        if _is_adam(optimizer):
            _add_adam(optimizer, table, group, parameter)
        else:
            _add_sgd(optimizer, table, group, parameter, buffers)
    table.step()
    # Not before: a buffer that exists is no first one any more, also for torch's step.
    for state, buffer in buffers:
        state["momentum_buffer"] = buffer


def _why_not(optimizer: Any, group: dict[str, Any], parameter: Tensor) -> str:
    for option in ("capturable", "differentiable"):
        if group.get(option):
            return f"{option}=True"
    if group.get("fused"):
        return "fused=True asks for PyTorch's own single pass"
    if isinstance(group["lr"], Tensor) or isinstance(group["weight_decay"], Tensor):
        return "lr or weight_decay is a tensor"
    grad = parameter.grad
    if grad.layout is not torch.strided:
        return f"gradients of layout {grad.layout}"
    why = _native.why_not(parameter, grad)
    if why:
        return why
    if parameter.dtype is not torch.float32:
        return f"{str(parameter.dtype)[6:]} parameters, whose state PyTorch keeps in that type"
    if not _native.is_dense(parameter):
        return "a parameter with gaps in its memory"
    state = optimizer.state.get(parameter)
    if not state:
        return "" if torch.get_default_dtype() is torch.float32 else "torch's default dtype is not float32"
    return _why_not_state(optimizer, group, parameter, state)


def _why_not_state(optimizer: Any, group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> str:
    if _is_adam(optimizer):
        step = state.get("step")
        if not isinstance(step, Tensor) or step.dtype is not torch.float32 or step.device.type != "cpu":
            return "a step count that is no float32 tensor on the CPU"
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
    else:
        names = ["momentum_buffer"] if group["momentum"] and state.get("momentum_buffer") is not None else []
    for name in names:
        value = state.get(name)
        if not isinstance(value, Tensor) or value.dtype is not torch.float32 or not _native.alike(parameter, value):
            return f"{name} is not laid out as its parameter"
    return ""


def _add_group(optimizer: Any, table: Table, group: dict[str, Any]) -> None:
    if _is_adam(optimizer):
        adam_group(table, group, group.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW)))
    else:
        sgd_group(table, group)


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format)


def _add_adam(optimizer: Any, table: Table, group: dict[str, Any], parameter: Tensor) -> None:
    """Makes the state that torch's step would make, under its keys."""
    state = optimizer.state[parameter]
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"] = _zeros(parameter)
        state["exp_avg_sq"] = _zeros(parameter)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = _zeros(parameter)
    third = state["max_exp_avg_sq"] if group["amsgrad"] else None
    states = (state["exp_avg"], state["exp_avg_sq"], third)
    table.add(parameter, table.base_of(parameter), parameter.grad, states, step=state["step"])


def _add_sgd(
    optimizer: Any, table: Table, group: dict[str, Any], parameter: Tensor, buffers: list[tuple[dict[str, Any], Tensor]]
) -> None:
    base = table.base_of(parameter)
    if not group["momentum"]:
        if _KEEPS_AN_EMPTY_BUFFER:
            optimizer.state[parameter].setdefault("momentum_buffer", None)
        table.add(parameter, base, parameter.grad, (None, None, None))
        return
    state = optimizer.state[parameter]
    buffer = state.get("momentum_buffer")
    flags = _native.FIRST if buffer is None else 0
    if buffer is None:
        buffer = _zeros(parameter)
        buffers.append((state, buffer))
    table.add(parameter, base, parameter.grad, (buffer, None, None), flags=flags)
