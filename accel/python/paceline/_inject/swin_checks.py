# SPDX-License-Identifier: Apache-2.0
"""What must hold for the fused operator to take the place of parts of a Swin model: nothing looks
at the parts that it skips.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from paceline._core.tensors import why_transformed
from paceline._inject import operators
from paceline._inject.swin_forms import Call, Form

# PyTorch's tables of hooks: those of a module, by name, and those of all modules.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EVERYWHERE = [
    getattr(torch_module, f"_global{name}")
    for name in _HOOKS
    if hasattr(torch_module, f"_global{name}")
]
# Of the mode of torch.set_default_device, which only makes new tensors elsewhere.
_SETS_DEVICE = "torch.utils._device"
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_KNOWN_PARTS = (torch.nn.Dropout, torch.nn.Softmax)
_HAS_KINDS_OF_AUTOCAST = hasattr(torch, "get_autocast_dtype")  # PyTorch 2.4

# Questions that older releases of PyTorch have no answer to.
_graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_function_modes = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
_function_mode = getattr(torch._C, "_get_function_stack_at", lambda _: None)


@dataclass(frozen=True)
class Original:
    """A class and what it calls, as they were when it was patched."""

    owner: Any
    helpers: dict[str, Any]
    bias: Any  # Transformers' class that holds the table, if there is one
    bias_forward: Any


def original_of(form: Form, owner: Any, library: dict[str, Any]) -> Original:
    bias = library.get("SwinRelativePositionBias")
    helpers = {name: getattr(owner, name, None) for name in form.helpers}
    return Original(owner, helpers, bias, getattr(bias, "forward", None))


def why_not_module(form: Form, original: Original, module: Any) -> str:
    """Returns why the calls of this module are left to its library, or an empty text."""
    kind: Any = type(module)
    if kind is not original.owner and kind.forward is not original.owner.forward:
        return "a subclass with a forward of its own"
    for name, known in original.helpers.items():
        if getattr(kind, name, None) is not known:
            return f"a {name} of its own"
    own, parts = module.__dict__, module.__dict__["_modules"]
    for name in form.helpers:
        if name in own:
            return "a method that the program has replaced"
    if parts.keys() != form.parts:
        return "submodules that this release does not know"
    holder = module
    if form.table_within:
        holder = parts[form.table_within]
        if type(holder) is not original.bias or holder._modules:
            return f"a {form.table_within} of another kind"
        if original.bias.forward is not original.bias_forward:
            return f"a {form.table_within} of another kind"
    if all(holder._parameters.keys() != each for each in form.parameters):
        return "parameters that this release does not know"
    if form.table_within and own["_parameters"]:
        return "parameters that this release does not know"
    for name in form.skipped:
        part = parts[name]
        if type(part) not in _KNOWN_PARTS and name != form.table_within:
            return f"a {name} of another kind"
        its = part.__dict__
        if "forward" in its:
            return f"a {name} of another kind"
        for hooks in _HOOKS:
            if its.get(hooks):
                return f"a hook on {name}"
    return ""


def why_not_tensors(call: Call) -> str:
    if type(call.x) is not torch.Tensor or type(call.table) not in _PLAIN:
        return "a tensor of another class"
    return ""


# Modules whose last forward pass was left to the library for a reason that may be gone by now.
_left: weakref.WeakSet[Any] = weakref.WeakSet()


def why_not_now(form: Form, module: Any) -> str:
    """Returns why nothing is computed by the operator just now, or an empty text.

    A checkpointed forward pass runs again in the backward pass, and must save the same tensors
    then. What was around it the first time, as a mode that counts operations, may be gone. So the
    second pass does what the first one did.
    """
    if _graph_task() != -1:  # in a backward pass
        return why_transformed() or ("its first pass was the library's" if module in _left else "")
    why = why_not_around(bool(form.skipped))
    if why:
        _left.add(module)
    elif _left:
        _left.discard(module)
    return why


def why_not_around(skips_modules: bool = False) -> str:
    """Returns why nothing is computed by an operator in what is around the call."""
    if operators.trial.idle:
        return operators.trial.idle
    if _dispatch_modes() > 0 or any(
        type(_function_mode(number)).__module__ != _SETS_DEVICE
        for number in range(_function_modes())
    ):
        return "a mode that looks at every operation"
    if skips_modules and any(_EVERYWHERE):
        return "hooks on all modules"
    return why_transformed()


def dtype_of_products(x: torch.Tensor) -> torch.dtype:
    """The type of what a Linear makes of this tensor, as autocast has it."""
    if x.dtype == torch.float64:
        return x.dtype
    kind = x.device.type
    if kind not in ("cpu", "cuda"):
        return x.dtype  # no kernels
    if _HAS_KINDS_OF_AUTOCAST:
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if kind == "cuda":
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else x.dtype
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else x.dtype
