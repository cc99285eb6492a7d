# SPDX-License-Identifier: Apache-2.0
"""Steps of Keras' `fit`, on any backend.

Marks lie around the list of callbacks, whose methods the loop calls on its own thread. A callback
of ours in the list would make Keras 3 wait for the device after each batch.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from paceline._core import library as abi
from paceline._core import loops
from paceline._frameworks._around import around, forgetting

_FRAMEWORKS = {"tensorflow": abi.TENSORFLOW, "jax": abi.JAX}


class _Fit(loops.LoopMarks):
    """Reads from Keras what trains once it trains: the backend is not loaded before."""

    def __init__(self, keras: str) -> None:
        self._keras = keras

    def on_train_begin(self, logs: Any = None) -> None:
        keras = sys.modules[self._keras]
        backend = keras.backend.backend()
        self.framework_id = _FRAMEWORKS.get(backend, 0)
        framework = sys.modules.get(backend)
        self.framework_version = str(getattr(framework, "__version__", ""))
        # PyTorch's backend takes the batch between two callbacks, the others within the step.
        self.loads_between_batches = backend == "torch"
        super().on_train_begin(logs)

    def before_callbacks(self) -> None:
        """Of the program, at the end of a batch."""
        self.end_step()
        loops.enter(abi.OTHER)

    def after_callbacks(self) -> None:
        if self.loads_between_batches:
            loops.leave(abi.OTHER)
            self.enter_between()


def mark_fit(callbacks: ModuleType) -> None:
    """For `keras.src.callbacks` and `tf_keras.src.callbacks`."""
    listed = callbacks.CallbackList
    keras = callbacks.__name__.partition(".")[0]
    fit = _Fit(keras)
    around(listed, "on_train_begin", after=forgetting(fit.on_train_begin))
    around(listed, "on_epoch_begin", after=forgetting(lambda: fit.on_epoch_begin(0)))
    around(listed, "on_epoch_end", before=forgetting(lambda: fit.on_epoch_end(0)))
    around(listed, "on_train_batch_begin", after=forgetting(lambda: fit.on_train_batch_begin(0)))
    around(
        listed,
        "on_train_batch_end",
        before=forgetting(fit.before_callbacks),
        after=forgetting(fit.after_callbacks),
    )
    around(listed, "on_test_begin", before=forgetting(fit.on_test_begin))
    around(listed, "on_test_end", after=forgetting(fit.on_test_end))
    loops.marked.add(keras)


def mark_saving(module: ModuleType) -> None:
    """For the module that has the class Model: ModelCheckpoint calls its methods, too."""
    for name in ("save", "save_weights"):
        around(
            module.Model,
            name,
            before=forgetting(lambda: loops.enter(abi.CHECKPOINT)),
            after=forgetting(lambda: loops.leave(abi.CHECKPOINT)),
        )
