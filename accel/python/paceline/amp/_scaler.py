# SPDX-License-Identifier: Apache-2.0
"""Loss scaling in which the host never waits for the device.

In every step PyTorch's GradScaler reads on the host whether a gradient was not finite, unless the
optimizer takes that answer as a tensor. This scaler takes only optimizers that do, and refuses
others by name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch

from paceline.amp._scaling import multiply, next_scale
from paceline.optim import _device
from paceline.optim._fused import Fused

Tensor = torch.Tensor
READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"
_WHAT = "paceline.amp.LossScaler: "
# Since 2.0 PyTorch's fused optimizers take tensors that say what to divide by and whether to skip.
_FUSED_TAKE_TENSORS = int(torch.__version__.split(".")[0]) >= 2


class _Of:
    """What the scaler knows of one optimizer until update()."""

    def __init__(self) -> None:
        self.stage = READY
        self.found: list[Tensor] = []  # not 0: a gradient was not finite


# Trainers ask whether they were given one of this class. Nothing of its own __init__ runs here, and
# all that it does with gradients is overridden.
_Theirs: Any = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler


class LossScaler(_Theirs):
    """`torch.amp.GradScaler` without waits: its arguments, methods, checkpoints and results, to the
    bit. The device decides whether a step is skipped, what gradients are divided by, and the next
    scale. So a CUDA graph may capture a step. Source: Micikevicius et al., arXiv:1710.03740.

    On a GPU it takes the optimizers of paceline.optim, and PyTorch's with fused=True. On the CPU it
    takes every optimizer. It is an instance of GradScaler, so trainers accept it. `get_scale` and
    `state_dict` wait for the device. Use one scaler for each device. It does not serve gradients of
    which ranks hold parts (FSDP).

    Args:
        device: is not needed: the device is that of the first loss.
        init_scale: the first scale, above 0.
        growth_factor: above 1; multiplies the scale after `growth_interval` steps without a skip.
        backoff_factor: between 0 and 1; multiplies the scale after a step that was skipped.
        growth_interval: steps, at least 1.
        enabled: False makes every method do nothing but call the optimizer.

    Raises:
        TypeError: `device` is no device.
        ValueError: an argument is out of range; the text names it.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = paceline.optim.AdamW(model.parameters())
        >>> scaler = paceline.amp.LossScaler(init_scale=8.0)
        >>> scaler.scale(model(torch.ones(2, 4)).mean()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> scaler.get_scale()
        8.0
    """

    def __init__(
        self,
        device: torch.device | str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not isinstance(device, (torch.device, str)):
            raise TypeError(
                f"{_WHAT}device is {device!r}: it must be a device, as GradScaler's first argument"
                f" is; pass init_scale={device!r}"
            )
        for name, value, good, must in (
            ("init_scale", init_scale, 0 < init_scale < math.inf, "above 0"),
            ("growth_factor", growth_factor, 1 < growth_factor < math.inf, "above 1"),
            ("backoff_factor", backoff_factor, 0 < backoff_factor < 1, "above 0 and below 1"),
            ("growth_interval", growth_interval, growth_interval >= 1, "at least 1"),
        ):
            if not good:
                raise ValueError(f"{_WHAT}{name} is {value}: it must be {must}")
        self._enabled = enabled
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        # The scale and the steps since it changed, before a device holds them.
        self._begin = (init_scale, 0)
        self._scale: Tensor | None = None
        self._tracker: Tensor | None = None
        self._optimizers: dict[int, _Of] = {}

    def __getstate__(self) -> dict[str, Any]:
        if self._optimizers:
            raise RuntimeError(
                f"{_WHAT}it can be copied or saved after update() alone, not between step() and"
                " that"
            )
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def is_enabled(self) -> bool:
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """Multiplies losses by the scale.

        Args:
            outputs: a loss of any shape, or a list or tuple of losses, of which the result has the
                same form.

        Raises:
            TypeError: something else was given.
            RuntimeError: a loss is on another device than the first one.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(each) for each in outputs)
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"{_WHAT}scale was given {type(outputs).__qualname__}: give a loss, or a list of"
                " losses"
            )
        if self._scale is None:
            self._hold(outputs.device)
        scale = self._held(outputs.device, "a loss")[0]
        return outputs * scale

    def _hold(self, device: torch.device) -> None:
        if device.type == _device.KIND and _device.is_capturing():
            raise RuntimeError(
                f"{_WHAT}its first step cannot be captured, or each replay would begin with its"
                " first scale: make one step before the capture"
            )
        scale, steps = self._begin
        self._scale = torch.full((), scale, dtype=torch.float32, device=device)
        self._tracker = torch.full((), steps, dtype=torch.int32, device=device)

    def _held(self, device: torch.device | None = None, what: str = "") -> tuple[Tensor, Tensor]:
        if self._scale is None or self._tracker is None:
            raise RuntimeError(
                f"{_WHAT}nothing has been scaled yet: call scale(loss).backward() first"
            )
        if device is not None and device != self._scale.device:
            raise RuntimeError(
                f"{_WHAT}{what} is on {device}, and the scale on {self._scale.device}: use a scaler"
                " for each device"
            )
        return self._scale, self._tracker

    # -- gradients
    # ------------------------------------------------------------

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients by the scale, in place, so that they can be clipped or looked at
        before `step`. The optimizers of paceline.optim clip by themselves (`max_grad_norm`).

        Raises:
            ValueError: a gradient is float16, where the division would lose small ones.
            RuntimeError: called twice for the optimizer, or after its `step`.
        """
        if not self._enabled:
            return
        of = self._of(optimizer)
        if of.stage != READY:
            said = (
                "has been called for this optimizer"
                if of.stage == UNSCALED
                else "is called after step()"
            )
            raise RuntimeError(f"{_WHAT}unscale_ {said} since the last update()")
        scale, _ = self._held()
        of.found = [self._divide(optimizer, scale.double().reciprocal().float(), whole=True)]
        of.stage = UNSCALED

    def _divide(self, optimizer: Any, inverse: Tensor, whole: bool) -> Tensor:
        """Multiplies the gradients in place. Returns a tensor that is not 0 if one of them was not
        finite. With `whole` it refuses gradients that would lose bits.
        """
        scale, _ = self._held()
        found = torch.full((), 0.0, dtype=torch.float32, device=scale.device)
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for parameter in (
            p for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ):
            grad = parameter.grad
            if whole and grad.dtype is torch.float16:
                raise ValueError(
                    f"{_WHAT}unscale_ of float16 gradients would lose small ones: clip in the step"
                    " instead (max_grad_norm= of paceline.optim)"
                )
            if grad.is_sparse:
                if grad.dtype is torch.float16:
                    grad = parameter.grad = grad.coalesce()  # sums of values may be infinite too
                grad = grad._values()
            self._held(grad.device, "a gradient")
            by_dtype.setdefault(grad.dtype, []).append(grad)
        with torch.no_grad():
            for grads in by_dtype.values():
                multiply(grads, found, inverse)
        return found

    # -- steps
    # ------------------------------------------------------------

    def step(self, optimizer: Any, *args: Any, **options: Any) -> Any:
        """Has the optimizer step with gradients divided by the scale. If a gradient is not finite,
        parameters and state stay as they are. Returns what the optimizer's step does.

        Raises:
            RuntimeError: a closure was given, or the optimizer has stepped since `update`.
            TypeError: on a GPU, the optimizer cannot skip a step without a wait of the host.
        """
        if not self._enabled:
            return optimizer.step(*args, **options)
        # Some trainers pass closure=None.
        if any(value is not None for value in (*args, *options.values())):
            raise RuntimeError(
                f"{_WHAT}step takes no closure or other arguments: a skipped step cannot be"
                " repeated"
            )
        of = self._of(optimizer)
        if of.stage == STEPPED:
            raise RuntimeError(
                f"{_WHAT}step has been called for this optimizer since the last update()"
            )
        scale, _ = self._held()
        by_host = scale.device.type != _device.KIND
        takes_tensors = _FUSED_TAKE_TENSORS and getattr(
            optimizer, "_step_supports_amp_scaling", False
        )
        if isinstance(optimizer, Fused):
            answer = self._fused_step(optimizer, of, scale, by_host)
        elif takes_tensors:
            if of.stage == READY:
                of.found = [self._divide(optimizer, torch.ones_like(scale), whole=False)]
            answer = self._told(optimizer, scale if of.stage == READY else None, of.found[0])
        elif by_host:
            if of.stage == READY:
                self.unscale_(optimizer)
            answer = None if float(of.found[0]) else optimizer.step()
        else:
            raise TypeError(
                f"{_WHAT}{type(optimizer).__qualname__} cannot be told by the device to skip a"
                " step, so the host would have to wait in each: pass fused=True where it has that,"
                " use one of paceline.optim, or keep torch.amp.GradScaler, which waits"
            )
        of.stage = STEPPED
        return answer

    def _fused_step(self, optimizer: Any, of: _Of, scale: Tensor, by_host: bool) -> Any:
        if of.stage == UNSCALED:
            return self._told(optimizer, None, of.found[0])
        if by_host:
            of.found = [self._divide(optimizer, torch.ones_like(scale), whole=False)]
            return self._told(optimizer, scale, of.found[0])
        of.found = [torch.full((), 0.0, dtype=torch.float32, device=scale.device)]
        optimizer.found_inf_out = of.found[0]  # the step's own pass over the gradients sets it
        try:
            return self._told(optimizer, scale, None)
        finally:
            del optimizer.found_inf_out

    @staticmethod
    def _told(optimizer: Any, scale: Tensor | None, found: Tensor | None) -> Any:
        optimizer.grad_scale, optimizer.found_inf = scale, found
        try:
            return optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def _of(self, optimizer: Any) -> _Of:
        return self._optimizers.setdefault(id(optimizer), _Of())

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Sets the scale of the next step. Call it once after the steps of all optimizers.

        Args:
            new_scale: the scale, a number or a tensor of one element. None lowers it if a step was
                skipped, and raises it after `growth_interval` steps that were not.

        Raises:
            RuntimeError: no optimizer has stepped since the last call.
        """
        if not self._enabled:
            return
        scale, tracker = self._held()
        found = [each for of in self._optimizers.values() for each in of.found]
        if new_scale is not None:
            scale.copy_(new_scale) if isinstance(new_scale, Tensor) else scale.fill_(new_scale)
        elif not found:
            raise RuntimeError(
                f"{_WHAT}update is called before step(): no gradient has been looked at"
            )
        else:
            next_scale(
                scale,
                tracker,
                functools.reduce(torch.add, found),
                self._growth_factor,
                self._backoff_factor,
                self._growth_interval,
            )
        self._optimizers = {}

    # -- what it knows
    # ------------------------------------------------------------

    def get_scale(self) -> float:
        """Returns the scale of the next step. Waits for the device."""
        if not self._enabled:
            return 1.0
        return self._begin[0] if self._scale is None else float(self._scale)

    def state_dict(self) -> dict[str, Any]:
        """Returns what torch.amp.GradScaler's state_dict does; either class loads it. Waits for the
        device.
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._begin[1] if self._tracker is None else int(self._tracker),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a state of torch.amp.GradScaler or of this class.

        Raises:
            ValueError: the state lacks an entry; the text names it.
        """
        if not self._enabled:
            return
        names = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
        missing = [name for name in names if name not in state]
        if missing:
            raise ValueError(
                f"{_WHAT}the state has no {', '.join(missing)}: was it saved by a scaler with"
                " enabled=False?"
            )
        self._begin = (float(state["scale"]), int(state["_growth_tracker"]))
        self._growth_factor, self._backoff_factor = (
            float(state["growth_factor"]),
            float(state["backoff_factor"]),
        )
        self._growth_interval = int(state["growth_interval"])
        if self._scale is not None and self._tracker is not None:
            self._scale.fill_(self._begin[0])  # in place: a captured graph reads it there
            self._tracker.fill_(self._begin[1])
