# SPDX-License-Identifier: Apache-2.0
"""SimOTA's assignment in mmdetection and YOLOX, FCOS3D's targets in mmdetection3d, and hard
voxelisation of mmcv and mmdetection3d, in programs that do not know Paceline.

A method of their classes is replaced in place, as for Swin models (swin.py): objects, their types
and settings stay the library's. A call is ours if everything about it is known
(detection_forms.py, voxel_forms.py, yolox_forms.py) and its tensors are on the CPU, or on a GPU
with kernels where it needs them. All else calls the original, as do steps without the operators in
their trial (operators_trial.py), and all steps after they were rolled back.

Which ground truth a point learns from is the original's but for rounding (class Reordered). Voxels
are the original's to the bit. No rank needs to agree on either: each computes the function of its
own pictures and clouds.
"""

from __future__ import annotations

import hashlib
import inspect
from types import ModuleType
from typing import Any

import torch

from paceline._core.log import say
from paceline._core.tensors import index_of
from paceline._inject import (
    detection_forms,
    operators,
    rtmdet_forms,
    swin_checks,
    voxel_forms,
    yolox_forms,
)
from paceline._inject.detection_forms import Call, Form

FORMS: tuple[Form, ...] = (
    *detection_forms.FORMS,
    *rtmdet_forms.FORMS,
    *yolox_forms.FORMS,
    *voxel_forms.FORMS,
)
uninstall = operators.uninstall


def install() -> None:
    """Patches the classes, now or when their libraries are imported."""
    operators.install((form.module for form in FORMS), _patch)


def _patch(library: ModuleType) -> None:
    own = [form for form in FORMS if form.module == library.__name__]
    for name in dict.fromkeys(form.owner for form in own):
        owner = getattr(library, name, None)
        if not isinstance(owner, type):
            continue
        forms = [form for form in own if form.owner == name]
        try:
            never = _patch_class(_fitting(forms, owner), owner)
        except Exception as error:  # the library stays as it is
            never = f"{type(error).__name__}: {error}"
            say(f"{forms[0].name} is left as it is: {never}")
        if never:
            operators.classes.append(operators.Patched(forms[0].name, never))


def _signature(method: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(method).parameters) if inspect.isfunction(method) else ()


def _fitting(forms: list[Form], owner: Any) -> Form:
    """The form of the class that has its method's arguments, or the last one."""
    for form in forms:
        if _signature(owner.__dict__.get(form.method)) == form.signature:
            return form
    return forms[-1]


def _patch_class(form: Form, owner: Any) -> str:
    """Returns why the class is left as it is, or an empty text."""
    original = owner.__dict__.get(form.method)
    if not inspect.isfunction(original):
        return f"its {form.method} is no plain function"
    signature = _signature(original)
    if signature != form.signature:
        return f"its {form.method} has the arguments {', '.join(signature[1:])}"
    missing = [name for name in form.helpers if name not in owner.__dict__]
    if missing:
        return f"it has no {missing[0]} of its own"
    library = inspect.unwrap(original).__globals__
    if form.digests and _digest(form, owner, library) not in form.digests:
        return f"its code is not that of {form.release}"
    operators.replace(owner, form.method, original, Patched(form, owner, original))
    return ""


def _digest(form: Form, owner: Any, library: dict[str, Any]) -> str:
    """Stands for all code of a call but its white space."""
    parts = [owner.__dict__[name] for name in (form.method, *form.helpers)]
    parts += [library[name] for name in form.functions]
    code = "".join("".join(inspect.getsource(each).split()) for each in parts)
    return hashlib.sha256(code.encode()).hexdigest()


class Patched(operators.Patched):
    """One class of which a method is replaced."""

    compiles = False  # the originals wait for numbers of candidates, which breaks graphs apart

    def __init__(self, form: Form, owner: Any, original: Any) -> None:
        super().__init__(form.name)
        self._form, self._owner = form, owner
        self._library = inspect.unwrap(original).__globals__
        self._has_keywords = form.signature[-1:] == ("kwargs",)
        self._names = form.signature[1:-1] if self._has_keywords else form.signature[1:]
        self._helpers = {name: owner.__dict__[name] for name in form.helpers}
        self._functions = {name: self._library[name] for name in form.functions}

    def __call__(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call: Any = None
        try:
            call = self._read(owner, args, kwargs)
        # All errors are those of reading: nothing has been computed yet.
        except (AttributeError, KeyError) as error:
            call = f"an object of another make: {error}"
        except Exception as error:
            call = f"{type(error).__name__} while the call was read"
            self._say(call, f": {error}")
        if isinstance(call, str):
            return self._leave(call)
        try:
            result = call.compute()
        # The original repeats the call, and tells the error if it is one. Others are the program's,
        # as the end of memory.
        except (AttributeError, TypeError, ValueError, OSError) as error:
            why = f"the operator refuses it: {type(error).__name__}"  # without the values
            self._say(why, f": {error}")
            return self._leave(why)
        self.computed += 1
        return result

    def _read(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | str:
        why = "it is being traced" if torch.jit.is_tracing() else swin_checks.why_not_around()
        why = why or self._why_not_owner(owner)
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
        call = self._form.read(owner, given, self._library)
        return call if isinstance(call, str) else _why_not_device(call) or call

    def _why_not_owner(self, owner: Any) -> str:
        kind, own = type(owner), vars(owner)
        names = (self._form.method, *self._helpers)
        for name in names:
            if name in own:
                return "a method that the program has replaced"
            if getattr(kind, name) is not getattr(self._owner, name):
                return f"a subclass with a {name} of its own"
        if any(getattr(self._owner, name) is not each for name, each in self._helpers.items()):
            return "a method that the program has replaced"
        if any(self._library[name] is not each for name, each in self._functions.items()):
            return "a function that the program has replaced"
        return ""


def _why_not_device(call: Call) -> str:
    """Returns why the call is not ours there. Where a call needs kernels, its operations in plain
    PyTorch would wait for the GPU, and gain little.
    """
    from paceline.ops import _device, _native

    kind = call.device.type
    if kind not in ("cpu", _device.KIND):
        return f"tensors on {kind}"
    if not call.needs_kernels:
        return ""
    if kind == "cpu":
        why = _native.why_unavailable()
    else:
        why = _device.why_unavailable(index_of(call.device))
    return why and f"nothing computes it on {kind}: {why}"
