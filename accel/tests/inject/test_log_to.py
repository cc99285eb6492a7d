# SPDX-License-Identifier: Apache-2.0
"""Numbers handed to MLflow, W&B and TensorBoard, which modules play here. tests/frameworks has the
real MLflow, tensorboardX and W&B (offline).
"""

from __future__ import annotations

import pytest
from programs import Train

PLAYED = """
import types
import paceline

class PlayedMlflow(types.ModuleType):
    def __init__(self):
        super().__init__("mlflow")
        self.local, self.logged, self.fails = threading.local(), [], False
        entities = types.ModuleType("mlflow.entities")
        entities.Metric = lambda *values: values
        sys.modules.update({"mlflow": self, "mlflow.entities": entities})
    def active_run(self):  # MLflow keeps it by thread
        return getattr(self.local, "run", None)
    def begin(self, name):
        self.local.run = types.SimpleNamespace(info=types.SimpleNamespace(run_id=name))
    def MlflowClient(self):
        return self
    def log_batch(self, run, metrics):
        if self.fails:
            raise OSError("the server is away")
        self.logged.append((run, metrics))

class PlayedWandb(types.ModuleType):
    def __init__(self):
        super().__init__("wandb")
        self.run, self.defined, self.rows = None, [], []
        sys.modules["wandb"] = self
    def define_metric(self, name, step_metric=None):
        self.defined.append((name, step_metric))
    def log(self, row, commit=True):
        self.rows.append((row, commit))

def short():
    # Reports twenty times a second, which the function for programs refuses.
    from paceline._core import hand_over
    begin = hand_over.HandOver.__init__
    def quick(self, name, target, every):
        begin(self, name, target, 0.05)
    hand_over.HandOver.__init__ = quick

model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(until=lambda: False, steps=10**6):
    number = 0
    limit = time.monotonic() + 30
    while number < steps and not until() and time.monotonic() < limit:
        for batch in DataLoader(Slow(16), batch_size=8):
            number += 1
            time.sleep(0.002)
            paceline.step(1000 + number)
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    assert steps < 10**6 or until(), "not within 30 s"

def names(numbers):
    return {name for name in numbers if not name.startswith(("paceline/kept", "paceline/gain"))}

WANTED = {"paceline/step_seconds", "paceline/samples_per_second", "paceline/share/data_wait",
          "paceline/share/forward", "paceline/share/backward", "paceline/share/comm_exposed",
          "paceline/share/optimizer", "paceline/share/unattributed", "paceline/share/other"}
short()
"""

MLFLOW = """
mlflow = PlayedMlflow()
paceline.log_to("mlflow")
train(steps=20)
assert mlflow.logged == [], "no run is open"
mlflow.begin("run-7")
train(lambda: len(mlflow.logged) >= 2)
(run, metrics), (_, later) = mlflow.logged[:2]
assert run == "run-7"
numbers = {name: value for name, value, _, _ in metrics}
assert names(numbers) == WANTED, numbers
assert 0.002 <= numbers["paceline/step_seconds"] < 1, numbers
shares = sum(value for name, value in numbers.items() if name.startswith("paceline/share/"))
assert abs(shares - 1) < 0.01, numbers
assert 8 / numbers["paceline/samples_per_second"] >= 0.002
steps = [step for _, _, _, step in metrics]
assert min(steps) > 1000, "the program's own number"
assert {step for _, _, _, step in later} != set(steps), "each step is logged once"
"""
AWAY = """
mlflow = PlayedMlflow()
mlflow.fails = True
mlflow.begin("run-7")
paceline.log_to("mlflow")
train(lambda: not any(thread.name == "paceline-mlflow" for thread in threading.enumerate()))
"""
WANDB = """
wandb = PlayedWandb()
paceline.log_to("wandb")
train(steps=20)
assert wandb.rows == []
wandb.run = wandb
train(lambda: len(wandb.rows) >= 2)
assert wandb.defined == [("paceline/step", None), ("paceline/*", "paceline/step")]
row, commit = wandb.rows[0]
assert commit is False, "the program's own steps stay as they are"
assert names(row) == WANTED | {"paceline/step"} and row["paceline/step"] > 1000, row
"""
TENSORBOARD = """
written = []
class SummaryWriter:
    def __init__(self, folder):
        self.folder = folder
    def add_scalar(self, name, value, step):
        written.append((self.folder, name, value, step))
    def flush(self):
        pass
sys.modules["torch.utils.tensorboard"] = None
sys.modules["tensorboardX"] = types.SimpleNamespace(SummaryWriter=SummaryWriter)
paceline.log_to("tensorboard", folder="here")
train(lambda: len(written) >= 12)
assert {folder for folder, *_ in written} == {"here"}
assert WANTED <= {name for _, name, _, _ in written}
"""
MISSING = """
sys.modules["torch.utils.tensorboard"] = sys.modules["tensorboardX"] = None
paceline.log_to("tensorboard")
train(lambda: not any(thread.name == "paceline-tensorboard" for thread in threading.enumerate()))
"""
LAST_WORDS = """
wandb = PlayedWandb()
wandb.run = wandb
from paceline._core import hand_over
hand_over._LAST_WORDS = 60
target = hand_over.target_of("wandb")
waits = hand_over.HandOver("wandb", target, 0)
waits._every = 3600
waits.start()
train(steps=20)
assert wandb.rows == []
while not hand_over.trace.steps():  # another thread writes the records
    time.sleep(0.01)
waits.end()
assert len(wandb.rows) == 1, "the last steps are logged when the program ends"
"""


@pytest.mark.parametrize(
    "program",
    [MLFLOW, WANDB, TENSORBOARD, LAST_WORDS],
    ids=["mlflow", "wandb", "tensorboard", "end"],
)
def test_numbers_are_logged(train_by_fork: Train, program: str) -> None:
    run = train_by_fork(PLAYED + program)
    assert run.code == 0, run.output


def test_a_target_that_fails_is_dropped_with_one_line(train_by_fork: Train) -> None:
    for program, line in (
        (AWAY, "log_to mlflow is off: OSError: the server is away"),
        (MISSING, "log_to tensorboard is off: ImportError: install tensorboard, or tensorboardX"),
    ):
        run = train_by_fork(PLAYED + program)
        assert run.code == 0 and run.output.count("log_to") == 1 and line in run.output, run.output


def test_a_job_sets_a_variable(train_by_fork: Train) -> None:
    program = PLAYED + "wandb = PlayedWandb()\nwandb.run = wandb\ntrain(lambda: wandb.rows)\n"
    run = train_by_fork(program, PACELINE_LOG_TO="wandb")
    assert run.code == 0, run.output
    wrong = train_by_fork(PLAYED + "train(steps=4)\n", PACELINE_LOG_TO="wandb, neptune")
    assert wrong.code == 0 and "'neptune': must be one of mlflow" in wrong.output, wrong.output


def test_only_rank_0_logs_and_wrong_names_are_refused(train_by_fork: Train) -> None:
    program = """
if os.environ["RANK"] == "1":
    paceline.log_to("wandb")
    assert not any(thread.name == "paceline-wandb" for thread in threading.enumerate())
for wrong in (lambda: paceline.log_to("comet"), lambda: paceline.log_to("wandb", every=0.1)):
    try:
        wrong()
    except ValueError as error:
        assert "must be" in str(error)
    else:
        raise AssertionError("it was taken")
"""
    run = train_by_fork(PLAYED + program, ranks=2)
    assert run.code == 0, run.output
