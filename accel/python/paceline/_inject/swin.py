# SPDX-License-Identifier: Apache-2.0
"""Fused window attention in the Swin models of timm, torchvision, Transformers and OpenMMLab, in
programs that do not know Paceline.

`forward` of their attention classes is replaced in place: instances, their types, state and
checkpoints stay the library's. A call is ours if everything about it is known (swin_forms.py,
swin_checks.py) and the GPU kernels take its tensors. All else calls the original: on the CPU, in
float32, under torch.compile, while tracing, with dropout of attention in training. So do steps
without the operators in their trial (operators_trial.py), and all steps after they were rolled
back. No call makes CUDA start: its tensors are on a GPU already, or it is left alone.

Results differ from the library's by rounding (class Reordered). Ranks that train together need not
agree on it, as they must for a collective: each computes the same function of its own data, and
their gradients are averaged afterwards as before. Where one rank has no kernels its gradients
round as without Paceline.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import torch

from paceline._core.log import say
from paceline._inject import operators, swin_checks, swin_forms, swin_v2_forms
from paceline._inject.swin_forms import Call, Form

FORMS = (*swin_forms.FORMS, *swin_v2_forms.FORMS)
_MOST_KINDS = 512  # of calls that are remembered

uninstall = operators.uninstall


def install() -> None:
    """Patches the classes, now or when their libraries are imported."""
    operators.install((form.module for form in FORMS), _patch)


def _patch(library: ModuleType) -> None:
    """For a library that has just been imported. The operators are imported here and not before:
    each process of the container comes by `install`.
    """
    never = ""
    try:
        from paceline.ops import _window  # noqa: F401
    except ImportError as error:
        never = f"there is no fused window attention here: {error}"
    for form in FORMS:
        owner = getattr(library, form.name, None)
        if form.module == library.__name__ and isinstance(owner, type):
            if never:
                _leave(form, never)
                continue
            try:
                _patch_class(form, owner)
            except Exception as error:  # the library stays as it is
                say(f"{form.module}.{form.name} is left as it is: {type(error).__name__}: {error}")


def _patch_class(form: Form, owner: Any) -> None:
    original = owner.__dict__.get("forward")
    if not inspect.isfunction(original):
        return _leave(form, "its forward is no plain function")
    signature = tuple(inspect.signature(original).parameters)
    if signature not in form.signatures:
        # An older release may have a class of this name that is made of one that is patched.
        if all(not each.name.startswith(f"{form.module}.") for each in operators.classes):
            _leave(form, f"its forward has the arguments {', '.join(signature[1:])}")
        return None
    operators.replace(owner, "forward", original, Patched(form, owner, original, signature))
    return None


def _leave(form: Form, why: str) -> None:
    operators.classes.append(operators.Patched(f"{form.module}.{form.name}", why))


class Patched(operators.Patched):
    """One class whose forward is replaced, and what became of its calls."""

    by_itself = "computes its own attention"

    def __init__(self, form: Form, owner: Any, original: Any, signature: tuple[str, ...]) -> None:
        super().__init__(f"{form.module}.{form.name}")
        self.form = form
        self._library = getattr(original, "__globals__", {})
        self._original = swin_checks.original_of(form, owner, self._library)
        self._has_keywords = signature[-1:] == ("kwargs",)
        self._names = signature[1:-1] if self._has_keywords else signature[1:]
        self._known: dict[Any, str] = {}  # by kind of call: why the kernels do not take it

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call: Any = None
        try:
            call = self._read(module, args, kwargs)
            if not isinstance(call, str):
                call = self._why_not_taken(call) or call
        except AttributeError as error:
            call = f"a module of another make: {error}"
        except Exception as error:  # nothing has been computed yet
            call = f"{type(error).__name__} while the call was read"
            self._say(call, f": {error}")
        if isinstance(call, str):
            return self._leave(call)
        from paceline.ops import _window

        try:
            result = call.compute(_window.window_attention)
        # Others are the program's: the end of memory, and what ends a checkpointed pass early.
        except (AttributeError, TypeError, ValueError, OSError) as error:
            why = f"the operator refuses it: {type(error).__name__}"  # without the values
            self._say(why, f": {error}")
            self._known[_kind(call)] = why
            return self._leave(why)
        self.computed += 1
        return result

    def _read(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | str:
        if torch.jit.is_tracing():
            return "it is being traced"
        x = args[0] if args else kwargs.get(self._names[0])
        if type(x) is not torch.Tensor:
            return "an input of another class"
        if why := _why_not_served(x):  # first of all: such a model may be called very often
            return why
        why = swin_checks.why_not_module(self.form, self._original, module)
        why = why or swin_checks.why_not_now(self.form, module)
        if why:
            return why
        if len(args) > len(self._names):
            return "too many arguments"
        given = {**dict(zip(self._names, args)), **kwargs}
        if len(given) != len(args) + len(kwargs):
            return "an argument is given twice"
        unknown = given.keys() - set(self._names)
        if unknown and not self._has_keywords:
            return f"{min(unknown)}, an argument that this release does not know"
        call = self.form.read(module, given, self._library)
        return call if isinstance(call, str) else swin_checks.why_not_tensors(call) or call

    def _why_not_taken(self, call: Call) -> str:
        """Asks the operator once for each kind of call, by tensors that are like those to come:
        nothing is computed that the original would compute again.
        """
        kind = _kind(call)
        why = self._known.get(kind)
        if why is None:
            from paceline.ops import _window

            shape = (call.windows, call.size, call.heads, call.head_dim)
            like: dict[str, Any] = {
                "dtype": swin_checks.dtype_of_products(call.x),
                "device": call.x.device,
            }
            probe: Any = (
                torch.empty((*shape[:2], 3, *shape[2:]), **like)
                if call.fused
                else tuple(torch.empty(shape, **like) for _ in range(3))
            )
            taken = _window.takes(probe, call.table, call.index, call.mask)
            why = "" if taken else _described(call, like["dtype"])
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
            self._known[kind] = why
        return why


def _kind(call: Call) -> Any:
    """What the kernels may look at. Two calls that are the same in this are both taken, or none."""
    x, table, mask = call.x, call.table, call.mask
    return (
        *(x.shape, x.dtype, x.device, swin_checks.dtype_of_products(x)),
        *(call.windows, call.size, call.heads, call.head_dim),
        *(table.shape, table.dtype, table.device, call.index.dtype),
        None if mask is None else (mask.shape, mask.dtype, mask.device),
    )


def _described(call: Call, dtype: torch.dtype) -> str:
    return (
        f"no kernel for {_named(dtype)} on {call.x.device.type}, windows of {call.size},"
        f" {call.head_dim} values a head"
    )


def _why_not_served(x: torch.Tensor) -> str:
    from paceline.ops import _window

    dtype = swin_checks.dtype_of_products(x)
    if _window.serves(x.device, dtype):
        return ""
    return f"no kernel for {_named(dtype)} on {x.device.type}"


def _named(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
