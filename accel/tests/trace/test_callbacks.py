# SPDX-License-Identifier: Apache-2.0
"""Callbacks for Keras, Paddle and XGBoost, called as those frameworks do, without them: each is
played by a module that has only what the callback asks for. tests/frameworks runs the real ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import Train
from rings import Ring

PLAYED = """
import copy, pickle, sys, time, types

def played(name, **members):
    sys.modules[name] = types.ModuleType(name)
    for key, value in members.items():
        setattr(sys.modules[name], key, value)
    return sys.modules[name]

class Base:
    def __init__(self):
        self._supports_tf_logs = False  # as tf_keras does

def again(callback):
    # The callback, pickled and read again: estimators are copied, and sent to other processes.
    assert isinstance(copy.deepcopy(callback), Base)
    read = pickle.loads(pickle.dumps(callback))
    assert isinstance(read, Base) and read is not callback
    return read

callbacks = types.SimpleNamespace(Callback=Base)
def fit(callback, evaluate, epochs=2, batches=3):
    callback.on_train_begin()
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch)
        for batch in range(batches):
            time.sleep(0.004)
            callback.on_train_batch_begin(batch, {})
            time.sleep(0.008)
            callback.on_train_batch_end(batch, {})
        evaluate(callback)
        callback.on_epoch_end(epoch, {})
"""
KERAS = """
played("tensorflow", __version__="2.99.0")
played("{keras}", callbacks=callbacks)
from paceline import tensorflow

def evaluate(callback):
    callback.on_test_begin()
    time.sleep(0.006)
    callback.on_test_end({{}})

callback = tensorflow.Callback()
assert isinstance(callback, Base) and "{keras}" in sys.modules
assert callback._supports_tf_logs, "tf_keras would read the logs of each batch from the device"
again(callback)
fit(callback, evaluate)
"""
PADDLE = """
played("paddle", callbacks=callbacks, __version__="9.0")
from paceline import paddle

def evaluate(callback):
    callback.on_eval_begin({})
    time.sleep(0.006)
    callback.on_eval_end({})

callback = paddle.Callback()
assert isinstance(callback, Base)
again(callback)
fit(callback, evaluate)
"""
XGBOOST = """
played("xgboost")
played("xgboost.callback", TrainingCallback=Base)
from paceline import xgboost

callback = again(xgboost.Callback())
model = object()
assert callback.before_training(model) is model
for epoch in range(6):
    time.sleep(0.004)
    assert callback.after_iteration(model, epoch, {}) is False, "it would stop the training"
"""


def trained(train: Train, folder: Path, program: str) -> Ring:
    """The ring of a program without PyTorch."""
    script = folder / "alone.py"
    script.write_text(PLAYED + program + "\nassert 'torch' not in sys.modules\n")
    return train("", command=[sys.executable, str(script)]).only()


@pytest.mark.parametrize("keras", ["keras", "tf_keras"])
def test_keras(train: Train, tmp_path: Path, keras: str) -> None:
    ring = trained(train, tmp_path, KERAS.format(keras=keras))
    assert [record.step for record in ring.steps] == list(range(1, 7))
    assert all(record.boundary == 2 for record in ring.steps)
    assert all(record.host["compute_undivided"] >= 0.008 for record in ring.steps)
    assert all(record.host["other"] >= 0.004 for record in ring.steps)
    # The evaluation of the first epoch belongs to the step after it.
    assert [record.step for record in ring.steps if record.host["evaluation"] >= 0.006] == [4]
    assert ring.total("data_wait", "forward", "backward") == 0


def test_paddle_waits_for_batches_between_callbacks(train: Train, tmp_path: Path) -> None:
    ring = trained(train, tmp_path, PADDLE)
    assert len(ring.steps) == 6
    assert all(record.host["compute_undivided"] >= 0.008 for record in ring.steps)
    assert all(record.host["data_wait"] >= 0.004 for record in ring.steps)
    assert [record.step for record in ring.steps if record.host["evaluation"] >= 0.006] == [4]
    assert all(record.samples is None for record in ring.steps), "nobody counts them"


def test_rounds_of_xgboost(train: Train, tmp_path: Path) -> None:
    ring = trained(train, tmp_path, XGBOOST)
    assert len(ring.steps) == 6
    assert all(record.wall >= 0.004 for record in ring.steps)


def test_tf_keras_is_preferred(train: Train, tmp_path: Path) -> None:
    """TensorFlow imports keras for its own use, and may do so beside a program with tf_keras."""
    trained(
        train,
        tmp_path,
        'played("keras", callbacks=None)\n' + KERAS.format(keras="tf_keras"),
    )


def test_a_program_alone_needs_no_tracker(train: Train, tmp_path: Path) -> None:
    run = train(
        """
        import paceline.xgboost
        with paceline.xgboost.communicator():
            print("alone")
        os.environ.update(WORLD_SIZE="2", RANK="0")
        try:
            with paceline.xgboost.communicator():
                pass
        except RuntimeError as error:
            print(error)
        """
    )
    assert (run.code, run.output.splitlines()[0]) == (0, "alone"), run.output
    assert "DMLC_TRACKER_PORT is not set: start the program by a job" in run.output


def test_importing_imports_no_framework(train: Train, tmp_path: Path) -> None:
    script = tmp_path / "imports.py"
    script.write_text(
        "import sys\n"
        "import paceline.paddle, paceline.tensorflow, paceline.xgboost\n"
        "heavy = {'tensorflow', 'keras', 'tf_keras', 'paddle', 'xgboost', 'torch', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    run = train("", command=[sys.executable, str(script)])
    assert run.code == 0, run.output
