# SPDX-License-Identifier: Apache-2.0
"""Optimizers whose state lies in the host's memory, while the GPU holds parameters and gradients.
ZeRO-Offload (Ren et al., arXiv:2101.06840) does this for one process, with an update that comes a
step late. Here it does not, so results are those of the same optimizer on the CPU, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import torch

from paceline._core.untraced import untraced
from paceline.optim import _sharded
from paceline.optim._fused import Fused

Tensor = torch.Tensor


class Offload(torch.optim.Optimizer):
    """An optimizer of this package that works in the host's memory, for parameters on a GPU. It
    leaves the GPU's memory to the model. Source: Ren et al., arXiv:2101.06840.

    A step copies the gradients into pinned memory, 2 bytes a value in bfloat16. It updates there,
    and writes the parameters back in their own dtype. The host holds the state, masters of 16-bit
    parameters, and a copy of parameters and gradients. The step waits for the gradients, so no CUDA
    graph can capture it. Checkpoints are those of `kind`; an Offload itself cannot be pickled.
    Numerics class: Reordered.

    Args:
        kind: AdamW, Adam, SGD, LAMB or LARS of paceline.optim.
        params: the parameters or groups of them, as PyTorch takes them.
        options: the other arguments of `kind`.

    Raises:
        ValueError: `kind` is another class.
        TypeError: a parameter is a DTensor.
        RuntimeError: by `step`, if a gradient is sparse.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> kind = paceline.optim.AdamW
        >>> optimizer = paceline.optim.Offload(kind, model.parameters(), lr=1e-4, max_grad_norm=1.0)
        >>> model(torch.ones(8, 4)).sum().backward()
        >>> optimizer.step()
        >>> round(optimizer.grad_norm, 3)
        17.889
    """

    def __init__(self, kind: type, params: Iterable[Any], **options: Any) -> None:
        if not (isinstance(kind, type) and issubclass(kind, Fused)):
            raise ValueError(
                f"paceline.optim.Offload: kind is {kind!r}: it must be a class of paceline.optim"
                " (AdamW, Adam, SGD, LAMB or LARS)"
            )
        # torch's own reading of what may be given: tensors, groups, names.
        groups = [{**group} for group in torch.optim.Optimizer(params, {}).param_groups]
        self._copies: dict[Tensor, Tensor] = {}
        self._grads: dict[Tensor, Tensor] = {}
        self._seen: dict[
            Tensor, tuple[int, int]
        ] = {}  # version and place of what the copy was made of
        self._written_back: list[Any] = []  # events behind the last step's copies
        make: Callable[..., Any] = kind
        self._inner = make([self._on_host(group) for group in groups], **options)
        self._whole = False
        super().__init__(groups, self._inner.defaults)
        self._whole = True

    @property
    def grad_norm(self) -> float | None:
        """The L2 norm of all gradients of the last step, after unscaling and before clipping. None
        without `max_grad_norm`.
        """
        return self._inner.grad_norm

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self._inner._step_supports_amp_scaling

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self._whole:
            self._inner.add_param_group(self._on_host(param_group))
        super().add_param_group(param_group)

    @untraced
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one update. Returns what the closure returns, or None without one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._refuse_sparse()
        with torch.no_grad():
            self._take_options()
            self._fetch()
            for name in (
                "grad_scale",
                "found_inf",
            ):  # a gradient scaler leaves them here while it calls
                if hasattr(self, name):
                    setattr(self._inner, name, getattr(self, name))
            try:
                self._inner.step()
            finally:
                for name in ("grad_scale", "found_inf"):
                    self._inner.__dict__.pop(name, None)
            self._write_back()
        return loss

    def refresh(self) -> None:
        """Has the next step begin with the parameters as they are now. Call it after the program
        has written into them through `.data` or a pointer, which PyTorch does not see.
        """
        self._seen.clear()

    def state_dict(self) -> dict[str, Any]:
        self._take_options()
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._inner.load_state_dict(state_dict)
        for group, inner in zip(self.param_groups, self._inner.param_groups):
            group.update({name: value for name, value in inner.items() if name != "params"})

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "paceline.optim.Offload is bound to its parameters: save state_dict() instead"
        )

    def _on_host(self, group: dict[str, Any]) -> dict[str, Any]:
        given = group["params"]
        copies = []
        for parameter in [given] if isinstance(given, Tensor) else list(given):
            if _sharded.is_one(parameter):
                raise TypeError(
                    "paceline.optim.Offload: a parameter is a DTensor: offload it by FSDP's own"
                    " CPUOffloadPolicy"
                )
            self._copies[parameter] = copy = torch.empty_like(
                parameter, **_like_memory(parameter)
            ).requires_grad_()
            with torch.no_grad():
                copy.copy_(parameter)
            self._seen[parameter] = _state_of(parameter)
            copies.append(copy)
        return {**group, "params": copies}

    def _refuse_sparse(self) -> None:
        for index, group in enumerate(self.param_groups):
            for position, parameter in enumerate(group["params"]):
                if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                    raise RuntimeError(
                        f"paceline.optim.Offload: parameter {position} of group {index} has a"
                        f" gradient of layout {parameter.grad.layout}. Give it a dense one"
                        " (sparse=False in nn.Embedding), or its own torch.optim.SparseAdam"
                    )

    def _take_options(self) -> None:
        """Copies the groups' options to the inner optimizer: schedules change those outside."""
        for group, inner in zip(self.param_groups, self._inner.param_groups):
            inner.update({name: value for name, value in group.items() if name != "params"})

    def _fetch(self) -> None:
        """Copies gradients, and parameters that the program has written into, to the host."""
        for event in self._written_back:
            event.synchronize()
        self._written_back = []
        devices = set()
        for parameter, copy in self._copies.items():
            if self._seen.get(parameter) != _state_of(parameter):
                copy.copy_(parameter, non_blocking=True)
                self._seen[parameter] = _state_of(parameter)
                devices.add(parameter.device)
            grad = parameter.grad
            if grad is None:
                copy.grad = None
                continue
            held = self._grads.get(parameter)
            if held is None or held.dtype is not grad.dtype:
                self._grads[parameter] = held = torch.empty_like(
                    copy, dtype=grad.dtype, **_like_memory(parameter)
                )
            held.copy_(grad, non_blocking=True)
            copy.grad = held
            devices.add(parameter.device)
        for event in _recorded(devices):
            event.synchronize()

    def _write_back(self) -> None:
        devices = set()
        for parameter, copy in self._copies.items():
            if copy.grad is None:
                continue
            parameter.copy_(copy, non_blocking=True)
            self._seen[parameter] = _state_of(parameter)
            devices.add(parameter.device)
        self._written_back = _recorded(devices)


def _state_of(parameter: Tensor) -> tuple[int, int]:
    return parameter._version, parameter.data_ptr()


def _like_memory(parameter: Tensor) -> dict[str, Any]:
    return {"device": "cpu", "pin_memory": parameter.is_cuda}


def _recorded(devices: set[torch.device]) -> list[Any]:
    """Records an event on the current stream of each GPU, and returns the events."""
    events = []
    for device in devices:
        if device.type == "cuda":
            stream = torch.cuda.current_stream(device)
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "paceline.optim.Offload: the step waits for gradients in the host's memory,"
                    " which no CUDA graph can: step outside of it"
                )
            events.append(stream.record_event())
    return events
