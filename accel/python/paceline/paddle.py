# SPDX-License-Identifier: Apache-2.0
"""Steps of Paddle's high-level API: a callback for `paddle.Model.fit`, where Paceline was not there
when Paddle was imported.

Importing this module does not import Paddle.
"""

from __future__ import annotations

import importlib
from typing import Any

from paceline._core import library as abi
from paceline._core import loops

__all__ = ["Callback"]


def Callback() -> Any:
    """Returns a callback that marks each batch of `paddle.Model.fit` as a step, its waits for
    batches, and its evaluation. In a job Paddle is marked without it, and it does nothing.

    Returns:
        A new callback, for the argument `callbacks` of `fit`.

    Raises:
        ImportError: Paddle is not installed.

    Example:
        >>> model.fit(data, callbacks=[paceline.paddle.Callback()])  # doctest: +SKIP
    """
    paddle = importlib.import_module("paddle")
    return loops.callback_of(
        Callback,
        *loops.bases(paddle),
        paddle.callbacks.Callback,
        framework_id=abi.PADDLE,
        framework_version=str(paddle.__version__),
        loads_between_batches=True,
    )
