# SPDX-License-Identifier: Apache-2.0
"""Keras, Paddle and XGBoost are marked without a change of the program. Each is played by modules
that have the classes and calls of the real one; tests/frameworks runs the real ones.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from programs import Train
from rings import Ring

KERAS = {
    "{keras}/__init__.py": """
        from types import SimpleNamespace
        backend = SimpleNamespace(backend=lambda: "{backend}")
        __version__ = "3.99"
        from . import src
    """,
    "{keras}/src/__init__.py": "from . import callbacks",
    "{keras}/src/models/__init__.py": "",
    "{keras}/src/engine/__init__.py": "",
    "{keras}/src/models/model.py": "class Model:\n def save(self): pass\n def save_weights(self): pass",
    "{keras}/src/engine/training.py": "from ..models.model import Model",
    "{keras}/src/callbacks.py": """
        class Callback:
            pass

        class CallbackList:
            def __init__(self, callbacks):
                self.callbacks = callbacks

        def told(name):
            def call(self, *arguments):
                for callback in self.callbacks:
                    getattr(callback, name, lambda *_: None)(*arguments)
            return call

        for name in ("train_begin", "epoch_begin", "epoch_end", "train_batch_begin",
                     "train_batch_end", "test_begin", "test_end"):
            setattr(CallbackList, "on_" + name, told("on_" + name))
    """,
    "program.py": """
        import importlib, sys, time
        keras = importlib.import_module("{keras}")
        lists = importlib.import_module("{keras}.src.callbacks")
        Model = importlib.import_module("{keras}.src.{model}").Model

        class Progress:
            def on_train_batch_end(self, batch, logs):
                time.sleep(0.003)

        def fit(callbacks=(), epochs=1, batches=3):
            each = lists.CallbackList([Progress(), *callbacks])
            each.on_train_begin()
            for epoch in range(epochs):
                each.on_epoch_begin(epoch)
                for batch in range(batches):
                    time.sleep(0.004)
                    each.on_train_batch_begin(batch)
                    time.sleep(0.008)
                    each.on_train_batch_end(batch, None)
                each.on_test_begin()
                time.sleep(0.006)
                each.on_test_end()
                each.on_epoch_end(epoch)

        keras.callbacks = lists
        sys.modules["keras"] = sys.modules.get("keras", keras)
        Model.save = Model.save
        fit()
        import paceline.tensorflow
        fit([paceline.tensorflow.Callback()] if "{keras}" == "tf_keras" else [])
        assert Model().save() is None
    """,
}
XGBOOST = {
    "xgboost/__init__.py": "from .training import train",
    "xgboost/callback.py": """
        class TrainingCallback:
            pass

        class CallbackContainer:
            def before_training(self, model):
                return model
            def after_iteration(self, model, epoch, dtrain, evals):
                return False
    """,
    "xgboost/training.py": """
        import time
        from .callback import CallbackContainer

        def train(rounds):
            each = CallbackContainer()
            model = each.before_training(object())
            for number in range(rounds):
                time.sleep(0.004)
                assert each.after_iteration(model, number, None, evals=None) is False
    """,
    "program.py": """
        import xgboost
        xgboost.train(4)
        import paceline.xgboost
        assert not hasattr(paceline.xgboost.Callback(), "after_iteration"), "it would count twice"
    """,
}
PADDLE = {
    "paddle/__init__.py": """
        import time
        from . import autograd, hapi, io, optimizer
        __version__ = "9.0"
        recording = True
        def in_dynamic_mode():
            return True
        def is_grad_enabled():
            return recording
        def save(what, path):
            time.sleep(0.005)
        class Tensor:
            def backward(self):
                time.sleep(0.006)
    """,
    "paddle/autograd.py": "def backward(tensors):\n pass",
    "paddle/hapi/__init__.py": "from . import callbacks",
    "paddle/hapi/callbacks.py": """
        class Callback:
            pass

        class CallbackList:
            def on_begin(self, mode, logs=None):
                pass
            def on_end(self, mode, logs=None):
                pass
    """,
    "paddle/io/__init__.py": "from .dataloader import dataloader_iter",
    "paddle/io/dataloader/__init__.py": "",
    "paddle/io/dataloader/dataloader_iter.py": """
        import time

        class Array:
            shape = (8, 4)

        class _DataLoaderIterSingleProcess:
            def __init__(self, sampler, left):
                self._batch_sampler, self.left = sampler, left
            def __iter__(self):
                return self
            def __next__(self):
                time.sleep(0.004)
                if self.left == 0:
                    raise StopIteration
                self.left -= 1
                return [Array(), Array()]

        class _DataLoaderIterMultiProcess(_DataLoaderIterSingleProcess):
            def __next__(self):
                return super().__next__()
    """,
    "paddle/optimizer.py": """
        import time

        class Optimizer:
            def step(self):
                self._apply_optimize()
            def minimize(self, loss):
                self._apply_optimize()
            def _apply_optimize(self):
                time.sleep(0.003)

        class Adam(Optimizer):
            def step(self):
                self._apply_optimize()
                self._apply_optimize()  # two groups of parameters
    """,
    "program.py": """
        import time
        import paddle
        from paddle.hapi.callbacks import CallbackList
        from paddle.io.dataloader.dataloader_iter import _DataLoaderIterSingleProcess as Loader

        adam, training, testing = paddle.optimizer.Adam(), object(), object()
        each = CallbackList()
        for epoch in range(2):
            for batch in Loader(training, 3):
                time.sleep(0.008)
                paddle.Tensor().backward()
                adam.step()
            paddle.save({}, "weights")
            each.on_begin("eval")
            for batch in Loader(testing, 2):
                time.sleep(0.002)
            each.on_end("eval")
        for batch in Loader(training, 1):
            paddle.Tensor().backward()
            adam.minimize(None)
    """,
}


def trained(train: Train, folder: Path, files: dict[str, str], **names: str) -> Ring:
    """The ring of a program without PyTorch that never names Paceline before it has trained."""
    for path, text in files.items():
        file = folder / (path.format(**names) if names else path)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = textwrap.dedent(text)
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", value)
        file.write_text(text)
    program = folder / "program.py"
    program.write_text(program.read_text() + "\nassert 'torch' not in sys.modules\n")
    program.write_text("import sys\n" + program.read_text())
    return train("", command=[sys.executable, str(program)]).only()


@pytest.mark.parametrize(
    ("keras", "model", "backend"),
    [("keras", "models.model", "torch"), ("tf_keras", "engine.training", "tensorflow")],
)
def test_keras(train: Train, tmp_path: Path, keras: str, model: str, backend: str) -> None:
    ring = trained(train, tmp_path, KERAS, keras=keras, model=model, backend=backend)
    assert [record.step for record in ring.steps] == list(range(1, 7)), "of two fits"
    assert all(record.boundary == 2 for record in ring.steps)
    assert all(record.host["compute_undivided"] >= 0.008 for record in ring.steps)
    waits, callbacks = ("data_wait", 0.003) if backend == "torch" else ("other", 0.007)
    assert all(record.host[waits] >= 0.004 for record in ring.steps)
    assert all(
        record.host["other"] >= callbacks for record in ring.steps if record.step not in {1, 4}
    )
    assert [record.step for record in ring.steps if record.host["evaluation"] >= 0.006] == [4]
    assert ring.records[-1].sources["checkpoint"] == 1, "saved after the last step"


def test_rounds_of_xgboost(train: Train, tmp_path: Path) -> None:
    ring = trained(train, tmp_path, XGBOOST)
    assert [record.user_step for record in ring.steps] == [0, 1, 2, 3]
    assert all(record.wall >= 0.004 for record in ring.steps)


def test_phases_of_paddle(train: Train, tmp_path: Path) -> None:
    ring = trained(train, tmp_path, PADDLE)
    assert [record.step for record in ring.steps] == list(range(1, 8))
    assert all(record.boundary == 1 and record.optimizer_mask == 1 for record in ring.steps)
    assert all(record.samples == 8 and record.micro_batches == 1 for record in ring.steps)
    for phase, least in (("data_wait", 0.004), ("backward", 0.006), ("optimizer", 0.003)):
        assert all(record.host[phase] >= least for record in ring.steps), phase
    assert all(record.host["forward"] >= 0.008 for record in ring.steps[:6])
    assert [record.step for record in ring.steps if record.host["evaluation"] >= 0.004] == [4, 7]
    assert [record.step for record in ring.steps if record.host["checkpoint"] >= 0.005] == [4, 7]


def test_steps_of_an_iterable(train: Train, tmp_path: Path) -> None:
    program = """
        import time
        import paceline

        class Array:
            shape = (8, 4)

        def batches():
            for _ in range(3):
                time.sleep(0.004)
                yield {"inputs": Array(), "targets": Array()}

        for epoch in range(2):
            for batch in paceline.steps(batches(), first=10 * epoch):
                time.sleep(0.008)
        for batch in paceline.steps(batches(), first=20):
            break
    """
    ring = trained(train, tmp_path, {"program.py": program})
    assert [record.user_step for record in ring.steps] == [0, 1, 2, 10, 11, 12]
    assert all(record.host["data_wait"] >= 0.004 for record in ring.steps)
    assert all(record.host["compute_undivided"] >= 0.008 for record in ring.steps)
    assert all(record.samples == 8 for record in ring.steps)
    assert ring.total("unattributed") < 0.05 * sum(record.wall for record in ring.steps)


def test_disabled(train: Train, tmp_path: Path) -> None:
    (tmp_path / "off").mkdir()
    for path, text in XGBOOST.items():
        file = tmp_path / "off" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text).partition("import paceline.xgboost")[0])
    program = str(tmp_path / "off" / "program.py")
    run = train("", command=[sys.executable, program], PACELINE_DISABLE="1")
    assert run.code == 0 and not run.rings, run.output
