# SPDX-License-Identifier: Apache-2.0
"""Counts the floating-point operations of a step of the model, once, in rank 0's twelfth step.

The twelfth step is before every trial of the tuner and before models are compiled or captured
(they wait for 16 steps), and the job summary leaves it out as a step of the warm-up. A mode of the
dispatcher sees the operations of the forward pass, with their shapes; no operation is changed,
and backward runs as ever. What backward computes follows from the operands that need a gradient: as
many operations again for each of two. So frozen layers count once, and what activation
checkpointing computes again does not count.

PyTorch's own FlopCounterMode sets hooks on backward and raises for some shapes of attention, so it
is not let into a program; the tests compare with it.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from types import ModuleType
from typing import Any

from paceline._core import marks
from paceline._core.log import say
from paceline._tracing import _peaks

STEP = 12

_sum: Counter[str] = Counter()  # operations by dtype
_device = ""
_ended = False
_told = False
_model: dict[str, Any] = {}
reason = "the twelfth step is not over"


def operations(name: str, args: Any, out: Any) -> float:
    """Floating-point operations of an operator, a multiply-add as two; 0 of those that are not
    counted. `name` without the namespace.
    """
    if name in ("mm", "bmm"):
        return 2.0 * out.numel() * args[0].shape[-1]
    if name in ("addmm", "baddbmm"):
        return 2.0 * out.numel() * args[1].shape[-1]
    if name in ("convolution", "_convolution"):
        # Each element of the output, of the input if transposed, meets one filter.
        base = args[0] if args[6] else out
        return 2.0 * base.numel() * math.prod(args[1].shape[1:])
    if name.startswith("_scaled_dot_product_") and not name.endswith("_backward"):
        query, key, value = args[0], args[1], args[2]
        pairs = query.numel() // query.shape[-1] * key.shape[-2]
        return 2.0 * pairs * (query.shape[-1] + value.shape[-1])
    return 0.0


def _operands(name: str, args: Any) -> tuple[Any, ...]:
    """The two factors; attention counts as a product of two."""
    return args[1:3] if name in ("addmm", "baddbmm") else args[0:2]


def _mode(torch: ModuleType) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = function(*args, **(kwargs or {}))
            try:
                _count(torch, function, args, out)
            except Exception as error:
                _give_up(f"{function}: {type(error).__name__}: {error}")
            return out

    return Counting()


def _count(torch: ModuleType, function: Any, args: Any, out: Any) -> None:
    namespace, _, name = str(getattr(function, "_overloadpacket", "")).partition(".")
    if namespace != "aten":
        return
    first = out[0] if isinstance(out, tuple) else out
    amount = operations(name, args, first)
    if amount == 0:
        return
    again = sum(1 for operand in _operands(name, args) if operand.requires_grad)
    if again and not torch.is_grad_enabled():
        # What backward computes cannot be told then.
        _give_up("reentrant checkpointing, or an autograd.Function of its own")
        return
    _sum[_peaks.kind_of(torch, first)] += int(amount * (1 + again))


class _Watch:
    """Lets the mode see what modules compute that the program calls itself, during one step."""

    def __init__(self, torch: ModuleType) -> None:
        from torch.nn.modules import module

        self._torch = torch
        self._thread = threading.get_ident()
        self._inside: Any = None
        self._mode: Any = None
        self._hooks = [
            module.register_module_forward_hook(self._returned, always_call=True),
            module.register_module_forward_pre_hook(self._called),
        ]

    def end(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()
        # PyTorch calls no hook of a forward pass that Ctrl-C has ended.
        mode, self._inside, self._mode = self._mode, None, None
        if mode is not None:
            mode.__exit__(None, None, None)

    def _called(self, module: Any, _: Any) -> None:
        if (
            self._inside is not None
            or _ended
            or threading.get_ident() != self._thread
            or _in_backward(self._torch)  # checkpointed activations are computed again
            or not (module.training and self._torch.is_grad_enabled())
        ):
            return
        try:
            why = _why_not(self._torch, module)
            if why:
                _give_up(why)
                return
            mode = _mode(self._torch)
            mode.__enter__()
        except Exception as error:
            _give_up(f"{type(error).__name__}: {error}")
            return
        self._inside, self._mode = module, mode

    def _returned(self, module: Any, _: Any, output: Any) -> None:
        if module is self._inside and threading.get_ident() == self._thread:
            mode, self._inside, self._mode = self._mode, None, None
            mode.__exit__(None, None, None)


def _in_backward(torch: ModuleType) -> bool:
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def _why_not(torch: ModuleType, root: Any) -> str:
    """Why what this module computes cannot be counted, or not without changing it."""
    global _device
    for part in root.modules():
        kind = type(part).__name__
        if kind == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None:
            return "the model is compiled"
        if isinstance(part, torch.jit.ScriptModule):
            return "a part of the model is TorchScript"
        if kind in ("DataParallel", "FullyShardedDataParallel"):
            return f"the model is in {kind}"
    for parameter in root.parameters():
        if type(parameter) is not torch.nn.Parameter:
            return f"a parameter is a {type(parameter).__name__}"
        if parameter.is_cuda:
            if torch.cuda.is_current_stream_capturing():
                return "a graph is being captured"
            _device = torch.cuda.get_device_name(parameter.device)
    return ""


def _why_never(torch: ModuleType) -> str:
    if "torch._inductor.compile_fx" in sys.modules:
        return "the program compiles"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < (2, 1):
        return f"PyTorch {torch.__version__} calls no hooks of a forward pass that fails"
    # Until 2.7 such operators refuse a mode that they do not know.
    if version in ((2, 5), (2, 6)) and "torch.nn.attention.flex_attention" in sys.modules:
        return "flex_attention may be used"
    tuner = sys.modules.get("paceline.tune._tuner")
    if tuner is not None and tuner.TURNS:
        return "a trial of the tuner runs"
    return ""


def _give_up(why: str) -> None:
    global _ended, reason
    _ended, reason = True, why
    _sum.clear()


def install() -> None:
    """Counts in this process from now on. Only rank 0's is asked to."""
    steps = 0
    watch: _Watch | None = None

    def step_ended(optimizer: Any) -> None:
        nonlocal steps, watch
        if steps >= STEP or marks.optimizer_indices.of(optimizer) != 0:
            return
        steps += 1
        if steps < STEP - 1:
            return
        try:
            if steps == STEP - 1:
                _begin()
            else:
                _finish()
        except Exception as error:
            _give_up(f"{type(error).__name__}: {error}")

    def _begin() -> None:
        nonlocal watch
        torch = sys.modules["torch"]
        why = _why_never(torch)
        if why:
            _give_up(why)
        else:
            watch = _Watch(torch)

    def _finish() -> None:
        global _ended, reason
        marks.step_ended.remove(step_ended)
        if watch is not None:
            watch.end()
        if not _ended:
            _ended = True
            reason = "" if _sum else "no module computed a product of matrices"

    marks.step_ended.append(step_ended)


def found(samples: int | None, tokens: int | None) -> dict[str, Any] | None:
    """What was counted, and what the step trained on, as far as a call has said so. None if nothing
    was counted.
    """
    global _told
    if not _ended:
        return None
    if reason:
        if not _told:
            _told = True
            say(f"the model's FLOPs are not counted, so there is no MFU: {reason}")
        return None
    if not _model:
        flops = sum(_sum.values())
        _model["flops"] = flops
        peaks = {kind: _peaks.peak(_device, kind) for kind in _sum}
        if all(peaks.values()):
            _model["peak"] = flops / sum(amount / peaks[kind] for kind, amount in _sum.items())
            _model["device"] = _device
    if samples:
        _model["samples"] = samples
    if tokens:
        _model["tokens"] = tokens
    return _model
