# SPDX-License-Identifier: Apache-2.0
"""Steps of Keras: a callback for `fit`, where Paceline was not there when Keras was imported.

Importing this module imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from paceline._core import library as abi
from paceline._core import loops

__all__ = ["Callback"]


def Callback() -> Any:
    """Returns a Keras callback that marks each batch of `fit` as a step, and its validation.

    It is a callback of the Keras that the program has imported: `tf_keras` if it has, else `keras`.
    In a job `fit` is marked without it, and it does nothing.

    Returns:
        A new callback, for the argument `callbacks` of `fit`.

    Raises:
        ImportError: there is no Keras.

    Example:
        >>> model.fit(data, callbacks=[paceline.tensorflow.Callback()])  # doctest: +SKIP
    """
    tensorflow, keras = sys.modules.get("tensorflow"), _keras()
    callback = loops.callback_of(
        Callback,
        *loops.bases(keras),
        keras.callbacks.Callback,
        framework_id=abi.TENSORFLOW if tensorflow is not None else 0,
        framework_version=str(getattr(tensorflow, "__version__", "")),
    )
    # Marks read no logs. Without this, tf_keras reads the logs of each batch from the device, and
    # refuses the callback with ParameterServerStrategy. Its own constructor says False.
    callback._supports_tf_logs = True
    return callback


def _keras() -> ModuleType:
    # TensorFlow may import keras for its own use; tf_keras is there only if the program wants it.
    return sys.modules.get("tf_keras") or importlib.import_module("keras")
