# SPDX-License-Identifier: Apache-2.0
"""Lowers the precision of programs that do not know Paceline. It is off unless the job sets two
variables: PACELINE_NUMERICS=Lossy, because precision is lost, and one of these levels.

PACELINE_PRECISION=TF32: float32 matrix products on a GPU use TF32. This sets PyTorch's own two
switches, and the program may set them otherwise.

PACELINE_PRECISION=O1: calls of the program's models run under torch.autocast in bfloat16, and
return float32.

PACELINE_PRECISION=O2: applies to the model and optimizer that the program gives to
paceline.accelerate, because O2 must exchange the optimizer.

O1 replaces `torch.nn.Module.__call__` in place. It changes only the outermost call of a module with
float32 parameters. It changes no call under the program's own autocast, in a loader's worker, under
torch.jit.trace, or within torch.compile (which inherits autocast). bfloat16 needs no loss scaling.
No GPU is touched before the program's first model on one.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any, Callable

import torch
from torch.utils.data import get_worker_info

from paceline._core import contract
from paceline._core.environment import disabled, setting, told
from paceline._core.log import say
from paceline.amp import _report
from paceline.amp._cast import cast
from paceline.amp._report import LEVELS

_ASKS_BY_DEVICE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
everywhere = False  # whether O1 is in every module
_undo: list[Callable[[], None]] = []


def asked() -> str:
    """Returns the level that the job asks for. If it is empty, `switch` says why."""
    name, level, numerics = contract.PRECISION, told(contract.PRECISION), setting(contract.NUMERICS)
    if level in ("", "Disabled"):
        _report.switch = f"off ({name} is {level or 'not set'})"
        return ""
    if level not in LEVELS:
        allowed = ", ".join(contract.VALUES[name])
        _report.switch = f"off ({name} is {level}, none of {allowed})"
    elif numerics != "Lossy":
        _report.switch = (
            f"off ({name} is {level}, which is of class Lossy, and {contract.NUMERICS} is"
            f" {numerics})"
        )
    else:
        return level
    say(f"models compute as they are written: {_report.switch[5:-1]}")
    return ""


def install() -> None:
    global everywhere
    level = asked()
    if level == "TF32":
        _report.switch = use_tf32()
    elif level == "O2":
        _report.switch = (
            "off (O2 exchanges the optimizer, which only the program can: "
            "model, optimizer, loader = paceline.accelerate(model, optimizer, loader))"
        )
        say(f"models compute as they are written: {_report.switch[5:-1]}")
    elif level == "O1" and not _is_tested(torch.nn.Module.__call__):
        _report.switch = "off (a PyTorch that this release was not tested with)"
        say(
            "models compute as they are written: torch.nn.Module.__call__ is not that of a tested"
            " PyTorch"
        )
    elif level == "O1":
        _patch(torch.nn.Module)
        everywhere = True
        _report.switch = f"on ({contract.PRECISION} is O1: models under torch.autocast in bfloat16)"


def uninstall() -> None:
    """Puts the originals back."""
    global everywhere
    while _undo:
        _undo.pop()()
    everywhere = False
    _report.models.clear()
    _report.switch = "off (uninstalled)"


def use_tf32() -> str:
    """Switches TF32 on by the older of PyTorch's two interfaces. It sets both, so programs may use
    either afterwards. Returns the text for `switch`.
    """
    if not torch.version.cuda:
        return "off (TF32 is of GPUs, and this PyTorch is built without CUDA)"
    import warnings

    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases advise their own interface
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = True
    _undo.append(functools.partial(setattr, matmul, "allow_tf32", before[0]))
    _undo.append(functools.partial(setattr, convolution, "allow_tf32", before[1]))
    return "on (float32 products on a GPU of capability 8.0 or more by TF32)"


# -- O1 in every module
# ------------------------------------------------------------


class _Inside(threading.local):
    model = False


def _is_tested(call: Any) -> bool:
    """Whether the call takes what those of 1.13 and 2.14 take: the module and any arguments."""
    code = getattr(call, "__code__", None)
    both = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code is not None and (code.co_argcount, code.co_flags & both) == (1, both)


def _patch(kind: Any) -> None:
    original = kind.__call__
    inside = _Inside()
    compiler = getattr(torch, "compiler", None)
    compiling = getattr(compiler, "is_compiling", None) or (lambda: False)
    half, whole = torch.bfloat16, torch.float32

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or inside.model:
            return original(self, *args, **kwargs)
        device = _device_of(self)
        if not device:
            return original(self, *args, **kwargs)
        inside.model = True
        try:
            with torch.autocast(device, dtype=half):
                answer = original(self, *args, **kwargs)
            return cast(answer, half, whole)
        finally:
            inside.model = False

    kind.__call__ = __call__
    _undo.append(functools.partial(setattr, kind, "__call__", original))


def _device_of(model: Any) -> str:
    """Returns the type of the device whose autocast the model is to run under, or an empty text if
    the model is left as it is. Never raises.
    """
    try:
        first = next(model.parameters(), None)
        if first is None or get_worker_info() is not None or disabled():
            return ""  # a loss or an activation: its inputs are float32 already
        device = first.device.type
        why = _why_not(model, first, device)
        name = f"{type(model).__module__}.{type(model).__qualname__}"
        _report.met(name, why)
        return "" if why else device
    except Exception:  # a module may have anything in the place of its parameters
        return ""


def _why_not(model: Any, first: Any, device: str) -> str:
    if device not in ("cpu", "cuda"):
        return f"its parameters are on {device}"
    if first.dtype is not torch.float32:
        return f"its parameters are {str(first.dtype)[6:]}: the program has chosen"
    if _autocast_is_on(device):
        return "the program has autocast on"
    if isinstance(model, torch.jit.ScriptModule) or torch.jit.is_tracing():
        return "TorchScript"
    if device == "cuda" and not _has_bfloat16(first.device.index):
        return "a GPU of a capability below 8.0, which has no bfloat16"
    return ""


def _autocast_is_on(device: str) -> bool:
    if _ASKS_BY_DEVICE:
        return bool(torch.is_autocast_enabled(device))
    return bool(
        torch.is_autocast_enabled() if device == "cuda" else torch.is_autocast_cpu_enabled()
    )


@functools.cache
def _has_bfloat16(index: int) -> bool:
    return torch.version.cuda is None or torch.cuda.get_device_capability(index)[0] >= 8
