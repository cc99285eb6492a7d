# SPDX-License-Identifier: Apache-2.0
"""torch.compile as a change that can be switched at a step's end.

As by `nn.Module.compile`, a module is compiled in place: its class, state_dict and hooks stay. The
module then calls `_compiled_call_impl`, and the eager way where that is None, so a switch costs an
assignment and compiles nothing anew. Evaluation and calls without gradients stay eager: they would
be compiled for themselves. Numerics class Reordered: operations are fused, and dropout draws other
numbers.

Whatever torch.compile cannot do leaves the module eager, with the reason.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sysconfig
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

from paceline._core.log import say
from paceline.tune import _cache, _room
from paceline.tune._roots import Roots

NAME = "compile"
BACKEND = "inductor"
# Seconds after which no further graph is compiled.
CAP = 120.0
# Processes that compile, for each rank. PyTorch would start one for each processor, up to 32.
THREADS = 4
MOST_ROOTS = 4
# Values for torch._dynamo.config while it is on. Errors leave a frame eager. Hooks that are added
# later are seen.
_DYNAMO = {
    "suppress_errors": True,
    "skip_nnmodule_hook_guards": False,
    "inline_inbuilt_nn_modules": True,  # PyTorch 2.4 sees such hooks only so
}
# A second backward through a graph is not an error.
_FUNCTORCH = {"donated_buffer": False}


def why_never() -> str:
    """Why no model can be compiled here, as far as PyTorch alone tells; empty if it can."""
    module = torch.nn.Module
    if not hasattr(module, "compile") or not hasattr(module, "_compiled_call_impl"):
        return f"PyTorch {torch.__version__} has no torch.nn.Module.compile"
    return ""


def why_no_hooks() -> str:
    """Why compiled modules would miss hooks that are set later; empty if they would not. PyTorch
    2.4 calls them if it is told to, and later releases always do.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4):
        return ""
    return f"PyTorch {torch.__version__} would not call hooks that are set later"


def _has(config: Any, name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that a later PyTorch will drop
        return hasattr(config, name)


def why_no_compiler(device: str) -> str:
    """Why PyTorch could not make code for this kind of device; empty if it can."""
    if device not in ("cpu", "cuda"):
        return f"its parameters are on {device}"
    if device == "cuda" and importlib.util.find_spec("triton") is None:
        return "there is no Triton: install the package triton"
    if device == "cuda" and torch.cuda.get_device_capability()[0] < 7:
        return "Triton needs a GPU of compute capability 7.0 or more"
    named = os.environ.get("CXX")
    if shutil.which(named) is None if named else not any(map(shutil.which, ("g++", "clang++"))):
        return "there is no C++ compiler: install g++ in the image, or set CXX"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "Python's headers are missing: install python3-dev in the image"
    return ""


def why_not(root: Any) -> str:
    """Why this module is left eager; empty if it may be compiled."""
    kind = type(root)
    for part in root.modules():
        if getattr(part, "_compiled_call_impl", None) is not None or _is_compiled(part):
            return "the program compiles it itself"
        if isinstance(part, torch.jit.ScriptModule):
            return f"{type(part).__qualname__} in it is TorchScript"
        if type(part).__name__ in ("FullyShardedDataParallel", "DataParallel"):
            return f"{type(part).__name__} cannot be compiled"
    if not (found := places(root)):
        return "the program replaces the forward of FSDP2's units"
    for each in (kind, *(type(place.module) for place in found)):
        if each.__call__ is not torch.nn.Module.__call__:
            return f"{each.__module__}.{each.__qualname__} replaces __call__"
    if kind.__module__.startswith("deepspeed."):
        return "DeepSpeed's engine compiles by its own setting"
    devices = {parameter.device.type for parameter in root.parameters()}
    if len(devices) != 1:
        return f"its parameters are on {' and '.join(sorted(devices))}"
    return why_no_compiler(devices.pop())


def _is_compiled(part: Any) -> bool:
    return type(part).__name__ == "OptimizedModule"


class Place(NamedTuple):
    """A module to compile, and its attribute that is called."""

    module: Any
    attribute: str

    @property
    def eager(self) -> Any:
        if self.attribute == "forward":
            return type(self.module).forward.__get__(self.module)
        return self.module._call_impl

    def put(self, call: _Guarded | None) -> None:
        # A wrapper's own __setattr__ may hand the value on to the module inside it (Lightning
        # Fabric), which would then call the wrapper.
        if call is not None or self.attribute != "forward":
            torch.nn.Module.__setattr__(self.module, self.attribute, call)
        elif isinstance(self.module.__dict__.get(self.attribute), _Guarded):
            del self.module.__dict__[self.attribute]


def places(root: Any) -> list[Place]:
    """What is compiled of a module that a program trains.

    Compilers follow neither DistributedDataParallel's own code nor FSDP2's hooks. So it is the
    module inside the former, and the forward of each unit of the latter, between its hooks.
    """
    parts = list(root.modules())
    units = [part for part in parts if is_fsdp2(part)]
    if units:
        lowest = [unit for unit in units if sum(map(is_fsdp2, unit.modules())) == 1]
        return [Place(unit, "forward") for unit in lowest if "forward" not in unit.__dict__]
    inside = [part.module for part in parts if type(part).__name__ == "DistributedDataParallel"]
    return [Place(module, "_compiled_call_impl") for module in inside or [root]]


def is_fsdp2(part: Any) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(part).__mro__)


class _Guarded:
    """What a module calls while it is compiled. Copies of the module, and pickled ones, are eager:
    they get None in its place. (FSDP2's can be neither copied nor pickled.)
    """

    def __init__(self, change: Compile, place: Place, compiled: Any) -> None:
        self._change, self._compiled = change, compiled
        self._module, self._eager = place.module, place.eager
        self._has_failed = False

    def __reduce__(self) -> Any:
        return type(None), ()

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._has_failed or not (self._module.training and torch.is_grad_enabled()):
            return self._eager(*args, **options)
        try:
            return self._compiled(*args, **options)
        except Exception as error:
            if not _is_of_the_compiler(error):
                raise
            # Only here, until the step ends: what another module has computed compiled in this step
            # is computed so again if activations are checkpointed.
            self._has_failed = True
            self._change.failed_with(error)
            return self._eager(*args, **options)


class Compile:
    """The modules that a program trains, compiled."""

    name = NAME

    def __init__(self) -> None:
        self._watch = Roots()
        self._roots: list[Any] = []
        self._compiled: list[tuple[Place, _Guarded]] = []
        self._began = 0.0
        self._before: list[tuple[Any, str, Any]] = []
        self.failed = ""
        self.proved = False

    def observe(self) -> None:
        """Begins to look for the modules. `why_not` ends that."""
        self._watch.begin()

    def why_not(self) -> str:
        """Why nothing is tried; empty if it may be."""
        self._roots = self._watch.end()
        if not self._roots:
            return "the program calls no module in training mode"
        if len(self._roots) > MOST_ROOTS:
            return f"the program trains {len(self._roots)} modules by themselves"
        if self._watch.differentiates_twice:
            return "the program differentiates twice (create_graph=True), which cannot be compiled"
        why = next(filter(None, map(why_not, self._roots)), "")
        if any(self._watch.runs_without_gradients(place.module) for place in self._places()):
            why = why or "a part of it runs without gradients first (reentrant checkpointing)"
        return why or _room.why_not(self.proved) or why_no_hooks()

    def _places(self) -> list[Place]:
        return [place for root in self._roots for place in places(root)]

    def use(self, on: bool) -> None:
        """Has the next step compiled, or eager."""
        if on and not self._compiled:
            self._prepare()
        for place, compiled in self._compiled:
            place.put(compiled if on and not self.failed else None)

    def drop(self) -> None:
        """Leaves the modules eager for good."""
        self.use(False)
        self._roots, self._compiled = [], []
        while self._before:
            setattr(*self._before.pop())

    def _prepare(self) -> None:
        import torch._dynamo
        import torch._functorch.config
        import torch._inductor.config

        self._set(torch._dynamo.config, _DYNAMO)
        self._set(torch._functorch.config, _FUNCTORCH)
        threads = min(THREADS, torch._inductor.config.compile_threads)
        self._set(torch._inductor.config, {"compile_threads": threads})
        if _cache.keep():
            self._set(torch._inductor.config, {"fx_graph_cache": True})  # off in older releases
        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # of each frame that stays eager
        self._began = time.monotonic()
        for place in self._places():
            compiled = torch.compile(place.eager, backend=self._backend)
            self._compiled.append((place, _Guarded(self, place, compiled)))

    def _set(self, config: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if _has(config, name) and getattr(config, name) != value:
                self._before.append((config, name, getattr(config, name)))
                setattr(config, name, value)

    def _backend(self, graph: Any, inputs: Any, **options: Any) -> Any:
        import torch._dynamo

        if time.monotonic() - self._began > CAP:
            return graph.forward
        return torch._dynamo.lookup_backend(BACKEND)(graph, inputs, **options)

    def failed_with(self, error: Exception) -> None:
        self.failed = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        say(f"a model is left eager: {self.failed}")

    def about(self) -> str:
        """How it was compiled, for readers."""
        try:
            from torch._dynamo.utils import counters

            graphs = counters["stats"]["unique_graphs"]
            breaks = sum(counters["graph_break"].values())
        except Exception:  # the counters are PyTorch's own business
            return ""
        names = ", ".join(type(root).__qualname__ for root in self._roots)
        return f"{names}: {graphs} graphs, {breaks} breaks between them"


def _is_of_the_compiler(error: Exception) -> bool:
    if isinstance(error, (torch.cuda.OutOfMemoryError, RecursionError)):
        return True
    return any(
        kind.__module__.startswith(("torch._dynamo", "torch._inductor"))
        for kind in type(error).__mro__
    )
