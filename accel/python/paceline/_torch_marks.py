# SPDX-License-Identifier: Apache-2.0
"""Host marks for PyTorch: seven functions are replaced, in place, by ones that mark and call the
original.

`_BaseDataLoaderIter.__next__`, `torch.autograd.backward` (Tensor.backward calls it by that name),
the `step` of every optimizer class and of GradScaler, `torch.save`, and
torch.distributed.checkpoint's `save` and `async_save`. No class is replaced, no module hook is set,
DDP's communication hook stays free. A function whose parameters are not those of a tested version
is left alone.

comm_exposed: the autograd engine runs its final callbacks when the last gradient has been
accumulated, in the order in which they were queued, before backward returns. DDP queues the one
that waits for its buckets when the last bucket is ready; FSDP queues its own in backward too. A
hook on the loss runs before all of the graph, so the callback it queues comes first: its time is
the last gradient's accumulation, and what follows until backward returns is the wait for
communication. Seen to hold in 1.13 and 2.14. The hook is set only while more than one rank trains,
and removed with the backward.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Callable

from paceline import _library as abi
from paceline._inject import after_import, say
from paceline._marks import trace

# Parameters of each patched function in the tested versions (1.13 and 2.14; what lies between
# shares them).
TESTED: dict[str, list[tuple[str, ...]]] = {
    "DataLoader.__next__": [("self",)],
    "torch.autograd.backward": [
        ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
    ],
    "Optimizer.step": [("self",)],
    "GradScaler.step": [("self", "optimizer")],
    "torch.save": [
        ("obj", "f", "pickle_module", "pickle_protocol", "_use_new_zipfile_serialization"),
        (
            "obj",
            "f",
            "pickle_module",
            "pickle_protocol",
            "_use_new_zipfile_serialization",
            "_disable_byteorder_record",
        ),
    ],
}

# What is on or off and why, for explain().
patches: dict[str, str] = {}
_undo: list[Callable[[], None]] = []
# Called with each optimizer that the program makes.
optimizer_made: list[Callable[[Any], None]] = []

UNKNOWN = abi.SAMPLES_UNKNOWN


def install(torch: ModuleType) -> None:
    version = str(torch.__version__)
    trace.framework_version = version.encode()[:31]
    trace.host_phases = sum(
        1 << phase
        for phase in (
            abi.DATA_WAIT,
            abi.FORWARD,
            abi.BACKWARD,
            abi.OPTIMIZER,
            abi.CHECKPOINT,
            abi.EVALUATION,
            abi.OTHER,
        )
    )
    _patch_loader(torch)
    _patch_backward(torch)
    _patch_optimizers(torch)
    _patch_scaler(torch)
    _patch_save(torch)
    after_import("torch.distributed.checkpoint.state_dict_saver", _patch_distributed_checkpoint)


def uninstall() -> None:
    """Puts the originals back, so that tracing can be measured against none of it within one
    process.
    """
    while _undo:
        _undo.pop()()
    patches.clear()


def _accept(what: str, function: Any, expected: list[tuple[str, ...]] | None = None) -> bool:
    code: Any = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else None
    if names is None or names not in (expected or TESTED[what]):
        patches[what] = f"off: parameters {names} are not those of a tested PyTorch"
        say(
            f"{what} is not traced: its parameters are not those of a PyTorch that this release was"
            " tested with"
        )
        return False
    patches[what] = "on"
    return True


def _replace(owner: Any, name: str, replacement: Any) -> None:
    original = getattr(owner, name)
    setattr(owner, name, replacement)

    def undo() -> None:
        # Someone else's patch over ours stays; it calls ours, which then only calls on.
        if getattr(owner, name) is replacement:
            setattr(owner, name, original)

    _undo.append(undo)


def _compiling(torch: ModuleType) -> Callable[[], bool]:
    """Whether torch.compile traces the caller: then the original is called, and no mark enters the
    graph.
    """
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


# -- loader
# ------------------------------------------------------------


def samples_in(batch: Any, torch: ModuleType, depth: int = 4) -> int:
    """Size of a batch: the first dimension of the first tensor found in it."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() > 0 else UNKNOWN
    if depth == 0 or isinstance(batch, (str, bytes)):
        return UNKNOWN
    if isinstance(batch, Mapping):
        parts = iter(batch.values())
    elif isinstance(batch, (tuple, list)):
        parts = iter(batch)
    else:
        attributes = getattr(batch, "__dict__", None)
        if not attributes:
            return UNKNOWN
        parts = iter(attributes.values())
    for _, part in zip(range(16), parts):
        found = samples_in(part, torch, depth - 1)
        if found != UNKNOWN:
            return found
    return UNKNOWN


def _count_samples(batch: Any, torch: ModuleType) -> int:
    try:
        return samples_in(batch, torch)
    except Exception:  # a user's mapping may do anything
        return UNKNOWN


def _patch_loader(torch: ModuleType) -> None:
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    original = base.__next__
    if not _accept("DataLoader.__next__", original):
        return
    gradients_on = torch.is_grad_enabled

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        library = trace.lib
        gradients = gradients_on()
        if library is None:
            # Evaluation alone does not make a training process.
            if not gradients or not trace.open():
                return original(self)
            library = trace.lib
            assert library is not None
        # One per DataLoader, alive as long as it: the iterator itself is new every epoch.
        loader = id(self._index_sampler)
        library.loader_enter(loader, gradients)
        samples = abi.NO_BATCH
        try:
            batch = original(self)
            samples = _count_samples(batch, torch)
            return batch
        finally:
            library.loader_leave(loader, samples)

    _replace(base, "__next__", __next__)


# -- backward
# ------------------------------------------------------------


def _ranks_communicate() -> bool:
    distributed = sys.modules.get("torch.distributed")
    try:
        return (
            distributed is not None
            and distributed.is_available()
            and distributed.is_initialized()
            and distributed.get_world_size() > 1
        )
    except Exception:
        return False


def _patch_backward(torch: ModuleType) -> None:
    original = torch.autograd.backward
    if not _accept("torch.autograd.backward", original):
        return
    compiling = _compiling(torch)
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def watch_end(tensors: Any, library: abi.Library) -> Any:
        def first_of_all(_: Any) -> None:
            queue_callback(library.gradients_done)

        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.requires_grad
                and tensor.grad_fn is not None
            ):
                return tensor.register_hook(first_of_all)
        return None

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if compiling() or (trace.lib is None and not trace.open()):
            return original(*args, **kwargs)
        library = trace.lib
        assert library is not None
        library.backward_enter()
        hook = None
        try:
            if _ranks_communicate():
                try:
                    hook = watch_end(args[0] if args else kwargs.get("tensors"), library)
                except Exception as error:
                    _say_once("comm_exposed", error)
            return original(*args, **kwargs)
        finally:
            if hook is not None:
                hook.remove()
            library.backward_leave()

    _replace(torch.autograd, "backward", backward)
    # TorchScript knows its built-in functions by identity.
    builtins = sys.modules.get("torch.jit._builtins")
    if builtins is not None:
        builtins._builtin_ops.append((backward, "aten::backward"))
        if builtins._builtin_table is not None:
            builtins._builtin_table[id(backward)] = "aten::backward"


_said: set[str] = set()


def _say_once(what: str, error: BaseException) -> None:
    if what not in _said:
        _said.add(what)
        say(f"{what} is not traced: {type(error).__name__}: {error}")


# -- optimizers
# ------------------------------------------------------------


class _Indices:
    """Numbers optimizers in the order of their first step, without keeping them alive."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def of(self, optimizer: Any) -> int:
        try:
            index = self._known.get(optimizer)
            if index is None:
                taken = set(self._known.values())
                index = next(i for i in range(len(taken) + 1) if i not in taken)
                self._known[optimizer] = index
            return index
        except TypeError:  # an optimizer that cannot be hashed
            return 15


_indices = _Indices()
# Optimizers that a gradient scaler is asked to step and has not stepped yet, by id: a scaler calls
# `step` or leaves it.
_scaled: set[int] = set()


def _patch_optimizers(torch: ModuleType) -> None:
    from torch.optim import Optimizer

    # Every optimizer calls this from __init__ and __setstate__, to wrap its class's step for the
    # profiler; ours goes around that, once per class that defines a step.
    name = (
        "_patch_step_function"
        if hasattr(Optimizer, "_patch_step_function")
        else "_hook_for_profile"
    )
    original: Any = getattr(Optimizer, name, None)
    if not _accept("Optimizer.step", original):
        return
    compiling = _compiling(torch)

    def timed_closure(closure: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(closure)
        def timed() -> Any:
            library = trace.lib
            if library is None:
                return closure()
            library.phase_enter(abi.FORWARD)
            try:
                return closure()
            finally:
                library.phase_leave(abi.FORWARD)

        return timed

    def traced(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)  # takes the mark `hooked` along
        def traced_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            library = trace.lib
            if compiling() or library is None:
                return step(self, *args, **kwargs)
            if args and callable(args[0]):
                args = (timed_closure(args[0]), *args[1:])
            elif callable(kwargs.get("closure")):
                kwargs["closure"] = timed_closure(kwargs["closure"])
            if _scaled:
                _scaled.discard(id(self))
            index = _indices.of(self)
            library.optimizer_enter(index)
            try:
                return step(self, *args, **kwargs)
            finally:
                library.optimizer_leave(index)

        traced_step._paceline = True  # type: ignore[attr-defined]
        return traced_step

    @functools.wraps(original)
    def hook_step(self: Any) -> None:
        original(self)
        try:
            step = type(self).step
            if not getattr(step, "_paceline", False):
                # The class that defines it, so that its other subclasses are wrapped as well, and
                # only once.
                owner = next(base for base in type(self).__mro__ if "step" in base.__dict__)
                if owner is not Optimizer:
                    _replace(owner, "step", traced(step))
            for made in optimizer_made:
                made(self)
        except Exception as error:
            _say_once(f"the optimizer {type(self).__name__}", error)

    _replace(Optimizer, name, hook_step)


@contextlib.contextmanager
def one_step(optimizer: Any) -> Iterator[None]:
    """Around several calls of an optimizer's step that are one step of the training."""
    library = trace.lib
    if library is None:
        yield
        return
    index = _indices.of(optimizer)
    library.optimizer_enter(index)
    try:
        yield
    finally:
        library.optimizer_leave(index)


@contextlib.contextmanager
def exposed() -> Iterator[None]:
    """Around a wait for communication within a step."""
    library = trace.lib
    if library is None:
        yield
        return
    library.phase_enter(abi.COMM_EXPOSED)
    try:
        yield
    finally:
        library.phase_leave(abi.COMM_EXPOSED)


# -- gradient scalers
# ------------------------------------------------------------


def _patch_scaler(torch: ModuleType) -> None:
    """A step whose gradients are not finite is a step too, without an update; the scaler's
    unscaling is the optimizer's time. An optimizer that takes the scale itself (fused ones) decides
    on the device: nobody on the host knows.
    """
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    original = scaler.step
    if not _accept("GradScaler.step", original):
        return
    compiling = _compiling(torch)

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        library = trace.lib
        if compiling() or library is None or not getattr(type(optimizer).step, "_paceline", False):
            return original(self, optimizer, *args, **kwargs)
        key = id(optimizer)
        index = _indices.of(optimizer)
        library.optimizer_enter(index)
        _scaled.add(key)
        try:
            result = original(self, optimizer, *args, **kwargs)
            if key in _scaled:
                library.count(abi.SCALER_SKIPS, 1)
            return result
        finally:
            _scaled.discard(key)
            library.optimizer_leave(index)

    _replace(scaler, "step", step)


# -- checkpoints
# ------------------------------------------------------------


def _timed_save(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def timed(*args: Any, **kwargs: Any) -> Any:
        library = trace.lib
        if library is None:
            return save(*args, **kwargs)
        library.phase_enter(abi.CHECKPOINT)
        try:
            return save(*args, **kwargs)
        finally:
            library.phase_leave(abi.CHECKPOINT)

    return timed


def _patch_save(torch: ModuleType) -> None:
    if not _accept("torch.save", torch.save):
        return
    timed = _timed_save(torch.save)
    _replace(torch, "save", timed)
    _replace(torch.serialization, "save", timed)


def _patch_distributed_checkpoint(saver: ModuleType) -> None:
    for name in ("save", "async_save"):
        save = getattr(saver, name, None)
        if save is None:
            continue
        _replace(saver, name, _timed_save(save))
        # The package re-exports them; it may have done so already.
        package = sys.modules.get("torch.distributed.checkpoint")
        if package is not None and getattr(package, name, None) is save:
            _replace(package, name, getattr(saver, name))
    patches["torch.distributed.checkpoint"] = "on"
