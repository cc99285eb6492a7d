# SPDX-License-Identifier: Apache-2.0
"""Phases of Paddle's dynamic mode: loops of one's own, and `paddle.Model.fit`, which makes the same
calls.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from paceline._core import library as abi
from paceline._core import loops
from paceline._core.marks import optimizer_indices
from paceline._core.trace import ALL_HOST_PHASES, trace
from paceline._frameworks._around import around, forgetting


class _Marks:
    def __init__(self, paddle: ModuleType) -> None:
        self._paddle = paddle
        self._evaluates = False  # `Model.evaluate` runs: its loader is not the training's
        self._stepping = 0  # depth of optimizers that call their base class, or each other

    def wrap_next(self, iterator: type) -> None:
        original = iterator.__next__  # type: ignore[attr-defined]

        @functools.wraps(original)
        def __next__(this: Any) -> Any:
            gradients = self._paddle.is_grad_enabled()
            if self._evaluates or not self._paddle.in_dynamic_mode():
                return original(this)
            # Evaluation alone does not make a training process.
            if trace.lib is None and not (gradients and self._open()):
                return original(this)
            library = trace.lib
            assert library is not None
            # One per DataLoader, also in later epochs: the iterator is new in each.
            loader = (
                id(this._batch_sampler) if this._batch_sampler is not None else id(this._dataset)
            )
            library.loader_enter(loader, int(gradients))
            samples = abi.NO_BATCH
            try:
                batch = original(this)
                samples = loops.samples_in(batch)
                return batch
            finally:
                library.loader_leave(loader, samples)

        iterator.__next__ = __next__  # type: ignore[attr-defined]

    def _open(self) -> bool:
        if trace.host_phases == 0:
            trace.host_phases = ALL_HOST_PHASES
        loops.name_framework(abi.PADDLE, str(self._paddle.__version__))
        return trace.open()

    def backward_enter(self) -> None:
        if trace.lib is not None or (self._paddle.in_dynamic_mode() and self._open()):
            assert trace.lib is not None
            trace.lib.backward_enter()

    def backward_leave(self) -> None:
        if trace.lib is not None:
            trace.lib.backward_leave()

    def optimizer_enter(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self._stepping += 1
        if self._stepping == 1 and trace.lib is not None:
            trace.lib.optimizer_enter(optimizer_indices.of(optimizer))

    def optimizer_leave(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self._stepping -= 1
        if self._stepping == 0 and trace.lib is not None:
            trace.lib.optimizer_leave(optimizer_indices.of(optimizer))
            loops.tell_end()

    def begin(self, _: Any, mode: str, *__: Any, **___: Any) -> None:
        if mode == "eval":
            self._evaluates = True
            loops.enter(abi.EVALUATION)

    def end(self, _: Any, mode: str, *__: Any, **___: Any) -> None:
        if mode == "eval":
            self._evaluates = False
            loops.leave(abi.EVALUATION)


def mark_loops(paddle: ModuleType) -> None:
    dataloader_iter = importlib.import_module("paddle.io.dataloader.dataloader_iter")
    CallbackList = importlib.import_module("paddle.hapi.callbacks").CallbackList
    marks = _Marks(paddle)
    # The ends of steps come first: if a later name is unknown in a release, steps are seen still.
    base = paddle.optimizer.Optimizer
    for known in list(vars(paddle.optimizer).values()):
        if isinstance(known, type) and issubclass(known, base):
            # Optimizers that shard parameters call the last one themselves.
            for name in ("step", "minimize", "_apply_optimize"):
                if name in vars(known):
                    around(known, name, marks.optimizer_enter, marks.optimizer_leave)
    marks.wrap_next(dataloader_iter._DataLoaderIterSingleProcess)
    marks.wrap_next(dataloader_iter._DataLoaderIterMultiProcess)
    for owner in (paddle.Tensor, paddle.autograd):
        around(
            owner, "backward", forgetting(marks.backward_enter), forgetting(marks.backward_leave)
        )
    around(CallbackList, "on_begin", before=marks.begin)
    around(CallbackList, "on_end", after=marks.end)
    around(
        paddle,
        "save",
        before=forgetting(lambda: loops.enter(abi.CHECKPOINT)),
        after=forgetting(lambda: loops.leave(abi.CHECKPOINT)),
    )
    loops.marked.add("paddle")
