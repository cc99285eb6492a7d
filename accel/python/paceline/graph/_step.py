# SPDX-License-Identifier: Apache-2.0
"""Watches a training step, captures it, and replays it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from paceline._core.log import say
from paceline._core.trace import explicit_step, trace
from paceline.graph import _facts as facts
from paceline.graph import _watch as watch
from paceline.graph._cuda import Cuda
from paceline.graph._report import Refused, captured, why_off
from paceline.optim._fused import Fused

# Before that DistributedDataParallel may rebuild its buckets.
_WARMUP_OF_DDP = 11


class WholeStep:
    """A training step that is captured once and then replayed. A call makes one step, and returns
    what the function returned.

    The first calls run the function as it is, and watch it. The next call captures it. Each further
    call copies its tensors into those of the capture and replays that. After every replay the
    result is in the same tensors: clone what you keep. Use it from one thread.

    A replay repeats what the capture saw. If a step cannot be repeated, the call raises `Refused`
    before anything of that step has happened. Call the function itself then. Causes are:

    - the host reads a value of the device;
    - a shape, a path through the code or a Python number changes;
    - inputs are on the CPU;
    - parameters or modes are others.

    What a step does besides using the device (counting, logging) happens in the first calls only.
    With PACELINE_CUDA_GRAPH=Disabled (`spec.acceleration.cudaGraph` of a job) every call runs the
    function.

    Args:
        function: makes one training step with the arguments that it is given.
        model: the module that the step trains. Its parameters and modes are watched.
        optimizer: the optimizer of the step, or a list of them, watched likewise.
        warmup: steps before the capture, at least 2; with DistributedDataParallel at least 11.
        examine: False leaves out watching the operations of the first steps.
        backend: for tests: runs and captures in place of CUDA.

    Raises:
        TypeError: the function cannot be called, or model or optimizer is something else.
        ValueError: `warmup` is below 2.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.AdamW(model.parameters())
        >>> def train(batch):
        ...     optimizer.zero_grad()
        ...     loss = model(batch).mean()
        ...     loss.backward()
        ...     optimizer.step()
        ...     return loss
        >>> step = paceline.graph.WholeStep(train, model=model, optimizer=optimizer)
        >>> for batch in torch.ones(3, 8, 4):
        ...     try:
        ...         loss = step(batch)
        ...     except paceline.graph.Refused:  # for example: the machine has no GPU
        ...         loss = train(batch)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        model: torch.nn.Module | None = None,
        optimizer: Any = None,
        warmup: int = 3,
        examine: bool = True,
        backend: Any = None,
    ) -> None:
        what = "paceline.graph.WholeStep: "
        if not callable(function):
            raise TypeError(
                f"{what}function is {type(function).__qualname__}: it must make one training step"
            )
        if model is not None and not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"{what}model is {type(model).__qualname__}: it must be a torch.nn.Module"
            )
        optimizers = (
            list(optimizer)
            if isinstance(optimizer, (list, tuple))
            else []
            if optimizer is None
            else [optimizer]
        )
        for each in optimizers:
            if not isinstance(each, torch.optim.Optimizer):
                raise TypeError(
                    f"{what}optimizer is {type(each).__qualname__}: it must be a"
                    " torch.optim.Optimizer, or a list"
                )
        if warmup < 2:
            raise ValueError(
                f"{what}warmup is {warmup}: it must be at least 2, since steps are compared"
            )
        if type(model).__name__ == "DistributedDataParallel":
            warmup = max(warmup, _WARMUP_OF_DDP)
        self._function, self._model, self._optimizers = function, model, optimizers
        self._warmup, self._examine = warmup, examine
        self._backend = Cuda() if backend is None else backend
        self._off = why_off()
        if self._off:
            say(f"{what}steps are made as always: {self._off}")
        self.recapture()

    def recapture(self) -> None:
        """Forgets the capture, if there is one. The next calls run the function and watch it, and
        then the step is captured anew. Call it when a changed shape or learning rate is to stay.
        """
        self._made = 0
        self._seen: list[watch.Operation] | None = None
        self._why = ""
        self._facts: list[tuple[str, Any, str]] = []
        self._static: list[torch.Tensor] = []
        self._inputs: list[tuple[str, Any, str]] = []
        self._quick: facts.Quick | None = None
        self._replay: Callable[[], Any] | None = None

    @property
    def is_captured(self) -> bool:
        """Whether the next call replays."""
        return self._replay is not None

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._off:
            return self._function(*args, **options)
        inputs = facts.Inputs(args, options)
        if self._replay is None:
            self._check(inputs)
            if self._made < self._warmup:
                return self._warm_up(inputs, args, options)
            self._capture(inputs, args, options)
        else:
            self._compare(inputs)
        for own, given in zip(self._static, inputs.tensors.values()):
            if own is not given:
                with torch.no_grad():
                    own.copy_(given, non_blocking=True)
        assert self._replay is not None
        answer = self._replay()
        if trace.lib is not None:
            explicit_step(-1)  # a replay calls no optimizer's step, which would mark it
        return answer

    def _check(self, inputs: facts.Inputs) -> None:
        why = self._why or self._backend.missing()
        for name, tensor in inputs.tensors.items():
            if not why and tensor.device.type != self._backend.type:
                why = (
                    f"{name} is on {tensor.device}: move it to the GPU before the step, whose"
                    " copies would be the host's"
                )
        for optimizer in self._optimizers:
            group = next((g for g in optimizer.param_groups if g.get("capturable") is False), None)
            if (
                not why
                and group is not None
                and not isinstance(optimizer, Fused)
                and self._backend.type == "cuda"
            ):
                why = (
                    f"{type(optimizer).__name__} counts its steps on the host (capturable=False):"
                    " pass capturable=True, or use one of paceline.optim"
                )
        if why:
            raise Refused(f"paceline.graph: {why}")

    def _compare(self, inputs: facts.Inputs) -> None:
        assert self._quick is not None
        if self._quick.same():
            change = facts.first_change(self._inputs, list(inputs.facts()))
        else:
            change = facts.first_change(self._facts, self._taken_for_granted(inputs))
            change = (
                change
                or "the model or the optimizer is another one than when the step was captured: "
                "call recapture()"
            )
        if change:
            raise Refused(f"paceline.graph: {change}")

    def _taken_for_granted(self, inputs: facts.Inputs) -> list[tuple[str, Any, str]]:
        own = [
            *facts.of_torch(),
            *facts.of_model(self._model),
            *facts.of_optimizers(self._optimizers),
        ]
        return [*inputs.facts(), *own]

    def _warm_up(self, inputs: facts.Inputs, args: Any, options: Any) -> Any:
        """Runs the function, and watches it. If it cannot be captured, the next call says so:
        this step has been made, and that one not.
        """
        taken = self._taken_for_granted(inputs)
        looked = self._examine and self._made >= self._warmup - 2  # the first ones make state
        with self._backend.beside():
            if looked:
                with watch.Watch(self._backend.type) as seen:
                    answer = self._function(*args, **options)
            else:
                answer = self._function(*args, **options)
        self._made += 1
        if self._facts:
            self._why = facts.first_change(self._facts, taken)
        self._facts = taken
        if looked and not self._why:
            now, self._seen = seen.operations, self._seen
            self._why = watch.why_not(now if self._seen is None else self._seen, now)
            self._seen = now
        return answer

    def _capture(self, inputs: facts.Inputs, args: Any, options: Any) -> None:
        taken = self._taken_for_granted(inputs)
        change = facts.first_change(self._facts, taken)
        if change:
            raise Refused(f"paceline.graph: {change}")
        self._static = [_copied(tensor) for tensor in inputs.tensors.values()]
        own = iter(self._static)
        args, options = facts.with_tensors(args, own), facts.with_tensors(options, own)
        try:
            self._replay = self._backend.capture(
                functools.partial(self._function, *args, **options)
            )
        except Exception as error:
            self._static = []
            self._why = (
                f"the step could not be captured: {type(error).__name__}: {error}. What does that:"
                " the host reading a value (.item(), print), torch.cuda.synchronize(), a copy from"
                " or to the host, an optimizer that counts on the host"
            )
            for optimizer in self._optimizers:
                optimizer.zero_grad(set_to_none=True)  # what was captured has never been computed
            raise Refused(f"paceline.graph: {self._why}") from error
        self._facts, self._inputs = taken, list(inputs.facts())
        self._quick = facts.Quick(self._model, self._optimizers)
        self._seen = None
        captured(getattr(self._function, "__qualname__", type(self._function).__qualname__))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor.detach()
        .clone(memory_format=torch.preserve_format)
        .requires_grad_(tensor.requires_grad)
    )
