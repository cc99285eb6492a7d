# SPDX-License-Identifier: Apache-2.0
"""What the optimizers of paceline.optim share. They divide the parameters between the library and
PyTorch, and fold loss scaling and clipping into the update. They keep master weights, and exchange
state_dicts with PyTorch's classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, Callable

import torch

from paceline._core.untraced import untraced
from paceline.optim import _device, _host, _native, _report, _sharded
from paceline.optim._native import HALVES, Table, Tensor

MASTER = "master_param"
# Since 2.0 a scaler leaves its numbers as attributes of the optimizer. Before, it passed itself to
# `step`.
_SCALER_LEAVES_ATTRIBUTES = int(torch.__version__.split(".")[0]) >= 2


class Fused:
    """A mixin in front of a subclass of torch.optim.Optimizer. A class says in `_add` how its
    parameters enter the table. Its PyTorch base class updates what the library does not.
    """

    param_groups: list[dict[str, Any]]
    state: dict[Tensor, dict[str, Any]]
    max_grad_norm: float | None = None
    master_weights: bool = True
    _of_elements = True  # no element's update depends on others
    # The L2 norm of all gradients of the last step, if max_grad_norm is set: after unscaling and
    # before clipping. On a GPU it is a tensor there, and reading it waits.
    grad_norm: float | Tensor | None = None
    _step_supports_amp_scaling = _SCALER_LEAVES_ATTRIBUTES
    # paceline.amp.LossScaler's tensor on a GPU. A step sets it to 1, and changes nothing, if a
    # gradient is not finite.
    found_inf_out: Tensor | None = None
    _scaler: Any = None
    _plan: _device.Plan | None = None
    _host_table: _host.OwnTable | None = None
    _tables = 0  # tables that were made since one served another step
    _written: dict[int, int]

    def _set_up(self, max_grad_norm: float | None, master_weights: bool) -> None:
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(
                f"max_grad_norm is {max_grad_norm}: it must be above 0, or None for no clipping"
            )
        self.max_grad_norm = max_grad_norm
        self.master_weights = master_weights

    def __getstate__(self) -> dict[str, Any]:
        ours = {"max_grad_norm": self.max_grad_norm, "master_weights": self.master_weights}
        return {**super().__getstate__(), **ours}  # type: ignore[misc]

    # -- the step
    # ------------------------------------------------------------

    @untraced
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one update. Returns what the closure returns, or None without one. A gradient
        scaler may call it. Unscaling is a part of the update, so the gradients stay scaled.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        began = time.perf_counter()
        if not _device.step(self):
            with torch.no_grad():
                self._update()
        _report.outcome_of(self).stepped(time.perf_counter() - began)
        return loss

    @untraced
    def scaled_step(self, scaler: Any) -> Any:
        """Does what `scaler.step(self)` does, in fewer passes. The norm that clipping needs also
        tells whether a gradient is not finite, so the scaler's own pass over the gradients is left
        out. `scaler.update()` follows as usual.
        """
        states: Any = getattr(scaler, "_per_optimizer_states", None)
        ready = (
            states is not None
            and scaler.is_enabled()
            and getattr(scaler, "_scale", None) is not None
        )
        # On a GPU the scaler's own pass stays: its result is on the device, and the host does not
        # wait for it.
        on_device = any(p.device.type == _device.KIND for p in self._with_grad())
        if (
            not ready
            or states[id(self)]["stage"].name != "READY"
            or on_device
            or self._left_to_torch()
        ):
            return scaler.step(self)
        self._scaler = scaler
        try:
            return self.step()
        finally:
            self._scaler = None

    def _left_to_torch(self) -> bool:
        return any(why or _sharded.is_one(parameter) for _, parameter, why in self._candidates())

    def _candidates(self) -> Iterator[tuple[dict[str, Any], Tensor, str]]:
        """Yields each parameter with a gradient, and why PyTorch has to update it (empty: the
        library does).
        """
        missing = _native.why_unavailable()
        for index, group in enumerate(self.param_groups):
            option = next(
                (name for name in ("capturable", "differentiable") if group.get(name)), ""
            )
            for position, parameter in enumerate(group["params"]):
                grad = parameter.grad
                if grad is None:
                    continue
                if grad.layout is not torch.strided:
                    raise RuntimeError(
                        f"paceline.optim.{type(self).__name__}: parameter {position} of group"
                        f" {index} has a gradient of layout {grad.layout}. Give it a dense one"
                        " (sparse=False in nn.Embedding), or its own torch.optim.SparseAdam"
                    )
                why = missing or (f"{option}=True" if option else self._why_not(parameter, grad))
                if why and self.master_weights and parameter.dtype in HALVES:
                    raise RuntimeError(
                        f"paceline.optim.{type(self).__name__}: parameter {position} of group"
                        f" {index} is {parameter.dtype}, and its float32 master is not kept here"
                        f" ({_report.outcome_of(self).device or why}). Pass master_weights=False to"
                        " train without one"
                    )
                yield group, parameter, why

    def _why_not(self, parameter: Tensor, grad: Tensor, device_type: str = "cpu") -> str:
        if _sharded.is_one(parameter) and not self._of_elements:
            return "shards of tensors, whose norms are of all ranks"
        return _native.why_not(parameter, grad, device_type)

    def _update(self) -> None:
        if self.found_inf_out is not None and any(
            p.grad is not None for group in self.param_groups for p in group["params"]
        ):
            raise RuntimeError(
                "paceline.amp.LossScaler: the library does not update these parameters on the GPU"
                f" ({_report.outcome_of(self).device or 'they are on several devices'}), and"
                " PyTorch's step would have the host wait: use torch.amp.GradScaler"
            )
        found_inf = getattr(self, "found_inf", None)
        if found_inf is not None and float(found_inf) != 0:
            return
        scale = getattr(self, "grad_scale", None)
        multiplier = 1.0 if scale is None else 1.0 / float(scale)
        outcome = _report.outcome_of(self)
        outcome.elsewhere = {}
        others: list[dict[str, Any]] = []
        # Removed while it serves: a step of another thread makes its own table. So does the next
        # step if this one fails.
        table: _host.OwnTable | None = self.__dict__.pop("_host_table", None)
        grads = None if table is None else table.gradients(self)
        served = grads is not None
        cached = table
        if table is None or not served:
            table, others = self._tabulate()
            # It remembers what it points to before anything lets other threads run.
            cached = None if others else self._cached(table)
        outcome.fused = len(table)
        if self._scaler is not None:
            multiplier = self._take_scale(table)
            if multiplier == 0:
                if served:
                    self._host_table, self._tables = table, 0
                return
        elif self.max_grad_norm is not None and not served and self._has_shards():
            multiplier = self._clip_shards(multiplier, bool(others))
        elif others and (multiplier != 1 or self.max_grad_norm is not None):
            self._scale_in_place(multiplier)
            multiplier = 1.0
        elif self.max_grad_norm is not None and len(table):
            self.grad_norm = table.norm() * multiplier
            multiplier *= _native.clip_factor(self.grad_norm, self.max_grad_norm)
        if len(table):
            table.step(multiplier)
            for parameter in table.written:
                if parameter.dtype in HALVES:
                    self._versions()[id(parameter)] = parameter._version
        if others:
            self._by_torch(others)
            return
        self._tables = 0 if served else self._tables + 1
        if cached is not None:
            cached.stepped()
            self._host_table = cached

    def _tabulate(self) -> tuple[_host.OwnTable, list[dict[str, Any]]]:
        """Returns the table for the library, and PyTorch's share in groups."""
        table = _host.OwnTable(type(self))
        others: list[dict[str, Any]] = []
        elsewhere = _report.outcome_of(self).elsewhere
        ours: dict[str, Any] | None = None
        theirs: dict[str, Any] | None = None
        for group, parameter, why in self._candidates():
            if why:
                elsewhere[why] = elsewhere.get(why, 0) + 1
                if theirs is not group:
                    others.append({**group, "params": []})
                    theirs = group
                others[-1]["params"].append(parameter)
                continue
            if ours is not group:
                self._add_group(table, group)
                ours = group
            self._add(table, group, parameter)
        return table, others

    def _cached(self, table: _host.OwnTable) -> _host.OwnTable | None:
        """Returns the table if it can serve later steps, else None."""
        return table.cached(self) if _host.is_due(self._tables) else None

    def _take_scale(self, table: Table) -> float:
        """Tells the scaler of scaled_step whether a gradient is not finite. Returns the factor of
        the gradients, 0 if the step is to be skipped.
        """
        state = self._scaler._per_optimizer_states[id(self)]
        norm = table.norm() if len(table) else 0.0
        finite = math.isfinite(norm)
        scale = self._scaler._scale
        state["found_inf_per_device"] = {
            scale.device: torch.full_like(scale, 0.0 if finite else 1.0)
        }
        state["stage"] = type(state["stage"]).STEPPED
        if not finite:
            return 0.0
        multiplier = 1.0 / float(scale)
        if self.max_grad_norm is not None:
            self.grad_norm = norm * multiplier
            multiplier *= _native.clip_factor(self.grad_norm, self.max_grad_norm)
        return multiplier

    def _with_grad(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    def _has_shards(self) -> bool:
        return any(map(_sharded.is_one, self._with_grad()))

    def _clip_shards(self, multiplier: float, in_place: bool) -> float:
        """Clips by the norm over all ranks. All of them come here, even if the library cannot
        update their shards. Returns the factor that the gradients are still to be multiplied by.
        """
        assert self.max_grad_norm is not None
        grads = [p.grad for p in self._with_grad()]
        self.grad_norm = _sharded.norm(grads) * multiplier
        multiplier *= _native.clip_factor(self.grad_norm, self.max_grad_norm)
        if not in_place:
            return multiplier
        for grad in grads:
            grad.mul_(multiplier)
        return 1.0

    def _scale_in_place(self, multiplier: float) -> None:
        """Unscales and clips the gradients themselves, for parameters that PyTorch updates."""
        with_grad = self._with_grad()
        if multiplier != 1:
            for parameter in with_grad:
                parameter.grad.mul_(multiplier)
        if self.max_grad_norm is not None:
            self.grad_norm = float(torch.nn.utils.clip_grad_norm_(with_grad, self.max_grad_norm))

    def _by_torch(self, groups: list[dict[str, Any]]) -> None:
        """Has PyTorch's own class update the parameters of these groups."""
        kept = self.param_groups
        attributes = {
            name: self.__dict__.pop(name)
            for name in ("grad_scale", "found_inf")
            if name in self.__dict__
        }
        self.param_groups = groups
        try:
            self._torch_step()
        finally:
            self.param_groups = kept
            self.__dict__.update(attributes)

    def _torch_step(self) -> None:
        step = super().step  # type: ignore[misc]
        # Without the profiler's hook, which is around our step already: the user's step hooks run
        # once.
        function = step.__func__
        while getattr(function, "hooked", False):
            function = function.__wrapped__
        function(self)

    def _add_group(self, table: Table, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _add(self, table: Table, group: dict[str, Any], parameter: Tensor) -> None:
        raise NotImplementedError

    # -- state
    # ------------------------------------------------------------

    def _versions(self) -> dict[int, int]:
        if "_written" not in self.__dict__:
            self._written = {}
        return self._written

    @staticmethod
    def _float_state(state: dict[str, Any], key: str, parameter: Tensor, base: Tensor) -> Tensor:
        """Returns a float32 state tensor that lies as the parameter does: the one that is there, a
        converted one, or a new one. The state of a shard is a shard too.
        """
        found = state.get(key)
        own = None if found is None else _sharded.local(found.detach())
        if own is None:
            kept = torch.zeros_like(base, dtype=torch.float32, memory_format=torch.preserve_format)
        else:
            kept = _native.laid_out_as(base, own, torch.float32)
        if kept is not own or not _sharded.is_one(found):
            state[key] = _sharded.like(parameter, kept)
        return kept

    @staticmethod
    def _count(state: dict[str, Any], base: Tensor) -> Tensor:
        step = state.get("step")
        if (
            not isinstance(step, Tensor)
            or step.dtype is not torch.float32
            or step.device != base.device
        ):
            state["step"] = step = torch.tensor(
                float(0 if step is None else step), dtype=torch.float32, device=base.device
            )
        return step

    def _master(self, parameter: Tensor, base: Tensor, state: dict[str, Any]) -> Tensor | None:
        """Returns the float32 values behind a 16-bit parameter, or None if it has none. Where the
        program has written into the parameter since the last step (a loaded checkpoint, an
        average), the master becomes the parameter again.
        """
        if base.dtype not in HALVES or not self.master_weights:
            state.pop(MASTER, None)
            return None
        found = state.get(MASTER)
        if found is None or found.dtype is not torch.float32:
            master = base.to(torch.float32)
            state[MASTER] = _sharded.like(parameter, master)
            return master
        own = _sharded.local(found)
        master = _native.laid_out_as(base, own)
        if master is not own:
            state[MASTER] = _sharded.like(parameter, master)
        if self._versions().get(id(parameter)) != parameter._version:
            changed = master.to(base.dtype) != base
            master.copy_(torch.where(changed, base.to(torch.float32), master))
        return master

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state of this class or of PyTorch's. Float32 moments of 16-bit parameters stay
        float32.
        """
        super().load_state_dict(state_dict)  # type: ignore[misc]
        self._versions().clear()
        for group, saved_group in zip(self.param_groups, state_dict["param_groups"]):
            for parameter, number in zip(group["params"], saved_group["params"]):
                state = self.state.get(parameter)
                if not state:
                    continue
                for key, value in state_dict["state"].get(number, {}).items():
                    held = state.get(key)
                    exact = isinstance(value, Tensor) and value.dtype is torch.float32
                    if exact and isinstance(held, Tensor) and held.dtype in HALVES:
                        state[key] = value.detach().to(held.device, copy=True)
                # PyTorch's class has rounded it, so it is no master any more.
                if MASTER in state and state[MASTER].dtype is not torch.float32:
                    del state[MASTER]
