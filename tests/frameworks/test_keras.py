# SPDX-License-Identifier: Apache-2.0
"""The real Keras, each with the backends that are installed here: `fit` is marked without a change
of the program, and goes on without waiting for each batch.
"""

from __future__ import annotations

from pathlib import Path

import jobs
import pytest
from programs import Train, runtime, train

__all__ = ["runtime", "train"]

PROGRAM = """
import importlib, sys
import numpy as np
keras = importlib.import_module(sys.argv[1])

inputs = np.ones((64, 4), np.float32)
model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(2):
    model.fit(inputs, inputs[:, :1], batch_size=8, epochs=2, verbose=0,
              validation_data=(inputs, inputs[:, :1]))
    model.save("model.keras")
lists = keras.callbacks.CallbackList([], add_history=True, model=model)
if keras.backend.backend() == "jax":
    assert lists._async_train, "it would wait for each batch"
assert [type(each).__name__ for each in lists.callbacks] == ["History"]
import paceline.tensorflow
assert not hasattr(paceline.tensorflow.Callback(), "end_step"), "it would count twice"
"""


@pytest.mark.parametrize(
    ("keras", "backend"), [("keras", "tensorflow"), ("keras", "jax"), ("tf_keras", "tensorflow")]
)
def test_fit_is_marked(train: Train, tmp_path: Path, keras: str, backend: str) -> None:
    python = jobs.environment("tensorflow")
    program = tmp_path / "fit.py"
    program.write_text(PROGRAM)
    # TensorFlow's import takes minutes on a busy machine unless Python keeps what it compiles.
    more = {"KERAS_BACKEND": backend, "PYTHONDONTWRITEBYTECODE": ""}
    if backend == "jax":
        (packages,) = jobs.environment("jax").parents[1].glob("lib/python3*/site-packages")
        program.write_text(f"import sys\nsys.path.append({str(packages)!r})\n{PROGRAM}")
    run = train("", command=[str(python), str(program), keras], **more)
    ring = run.only()
    assert [record.step for record in ring.steps] == list(range(1, 33)), run.output
    assert all(record.host["compute_undivided"] > 0 for record in ring.steps)
    evaluated = [record.step for record in ring.steps if record.host["evaluation"] > 0]
    assert evaluated == [9, 17, 25]
    assert [record.step for record in ring.steps if record.host["checkpoint"] > 0] == [17]
    assert ring.total("forward", "backward", "optimizer") == 0
