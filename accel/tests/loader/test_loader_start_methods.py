# SPDX-License-Identifier: Apache-2.0
"""Workers that start by forkserver or spawn: the samples, order, random state and errors of
PyTorch's own, and their batches lie in slots too.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch
from loader_cases import CASES, TORCH, difference, observed
from paceline import loader
from paceline.loader import _iterator, _prefetch, _report
from paceline.loader._workers import few, hazards
from paceline.loader._workers.plan import Plan
from torch.utils.data import Dataset, TensorDataset
from torch.utils.data._utils import worker as torch_worker

OTHERS = ("forkserver", "spawn")
TESTS = os.pathsep.join(str(folder) for folder in Path(__file__).parents[:2])
# Each shows what only one start method could break: the order and random state, errors, early
# breaks, tensors that go PyTorch's way, and slots that a worker holds. test_loader.py has them all.
CHOSEN = [
    "shuffled_large_with_generator",
    "exceptions",
    "workers_set_up_by_the_program",
    "left_early",
    "batches_of_other_makes",
    "cached_batches",
]
assert CASES.keys() >= {*CHOSEN}


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    """One server for all tests, which has imported what its workers need. Else each of them would
    import PyTorch.
    """
    multiprocessing.set_forkserver_preload(["conftest", "loader_cases"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", TESTS)
        forkserver.ensure_running()


@pytest.fixture
def by_forkserver() -> Iterator[None]:
    was = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("forkserver", force=True)
    yield
    multiprocessing.set_start_method(was, force=True)


@pytest.mark.usefixtures("by_forkserver")
@pytest.mark.parametrize("name", CHOSEN)
def test_a_fork_servers_workers_equal_torchs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = _iterator.iterator

    def kept(wanted: Any) -> Any:
        made.append(make(wanted))
        return made[-1]

    expected = observed(name, TORCH)
    monkeypatch.setattr(_iterator, "iterator", kept)
    assert difference(observed(name, loader.DataLoader), expected) == ""
    assert any(isinstance(each, _iterator.Iterator) for each in made)


class Large(Dataset):
    dies_at = -1

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        if index == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((8192,), float(index)), index, torch.rand(1)


def descriptors() -> list[str]:
    return [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


@pytest.mark.parametrize("method", OTHERS)
def test_batches_lie_in_slots(method: str) -> None:
    options: dict[str, Any] = {
        "batch_size": 4,
        "num_workers": 1,
        "multiprocessing_context": method,
    }
    torch.manual_seed(3)
    expected = list(TORCH(Large(), **options))
    torch.manual_seed(3)
    made = loader.DataLoader(Large(), **options)
    iterator = iter(made)
    assert not any("paceline-loader" in each for each in descriptors()), "all workers have it"
    assert [difference(batch, like) for batch, like in zip(iterator, expected)] == [""] * 6
    assert _report.account_of(made).in_slabs == 6


@pytest.mark.usefixtures("by_forkserver")
def test_the_next_epoch_is_begun_early_and_a_wrong_order_is_dropped() -> None:
    rows = TensorDataset(torch.arange(24.0))
    seen: list[Any] = []
    made: Any = None
    for kind, more in ((TORCH, {}), (loader.DataLoader, {"prefetch_next_epoch": True})):
        options: dict[str, Any] = {"num_workers": 1, "persistent_workers": True, **more}
        made = kind(rows, batch_size=4, shuffle=True, **options)
        torch.manual_seed(1)
        list(made)
        torch.manual_seed(2)  # not what the order was predicted from
        seen.append([batch.tolist() for _ in range(2) for (batch,) in made])
    assert seen[0] == seen[1]
    exchange = made._iterator._exchange
    assert exchange.misses == 1 and exchange.hits >= 1
    assert exchange.dropped.value > 0


def test_no_epoch_is_begun_early_unasked_while_workers_see_what_the_program_writes() -> None:
    options = {"num_workers": 1, "persistent_workers": True}
    for method, why in (("fork", ""), ("forkserver", "start by forkserver see")):
        made = TORCH(TensorDataset(torch.arange(24.0)), multiprocessing_context=method, **options)
        found = _prefetch.why_not(made)
        assert why in found and bool(why) == bool(found)


@pytest.mark.parametrize("method", OTHERS)
def test_a_dataset_that_cannot_be_pickled_is_torchs_error(method: str) -> None:
    before = sorted(descriptors())
    seen = []
    for kind in (TORCH, loader.DataLoader):
        rows = Large()
        rows.__dict__["cut"] = lambda index: index
        with pytest.raises(Exception) as error:
            iter(kind(rows, num_workers=2, multiprocessing_context=method))
        seen.append((type(error.value), str(error.value)))
        del error
    assert seen[0] == seen[1] and "pickle" in seen[0][1]
    assert not any("paceline-loader" in each for each in descriptors()), before


@pytest.mark.usefixtures("by_forkserver")
def test_a_killed_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The training process is not its parent, so PyTorch notices when it has waited this long.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)
    rows = Large()
    rows.dies_at = 10
    iterator = iter(loader.DataLoader(rows, batch_size=2, num_workers=2))
    pids = [worker.pid for worker in iterator._workers]
    with pytest.raises(RuntimeError, match="|".join(f"pid.* {pid}" for pid in pids)):
        list(iterator)


PROGRAM = """
import multiprocessing, signal
multiprocessing.set_forkserver_preload(["conftest", "loader_cases"])
import conftest
from paceline import loader
from test_loader_start_methods import Large, look_often
if __name__ == "__main__":
    options = {"multiprocessing_context": "forkserver", "worker_init_fn": look_often}
    iterator = iter(loader.DataLoader(Large(), num_workers=2, **options))
    next(iterator)
    print(*[worker.pid for worker in iterator._workers], flush=True)
    signal.pause()
"""


def look_often(worker: int) -> None:
    torch_worker.MP_STATUS_CHECK_INTERVAL = 0.2


def has_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_workers_end_when_the_training_process_is_killed(tmp_path: Path) -> None:
    """The fork server lives on while it has workers, so they do not see another parent."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": TESTS}
    program = subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE)
    assert program.stdout is not None
    workers = [int(pid) for pid in program.stdout.readline().split()]
    assert len(workers) == 2 and not any(has_gone(pid) for pid in workers)
    program.kill()
    program.wait()
    until = time.monotonic() + 20
    while not all(has_gone(pid) for pid in workers):
        assert time.monotonic() < until, "workers have outlived the training process"
        time.sleep(0.05)


def test_a_start_method_that_the_program_has_not_set_stays_unset() -> None:
    was = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        assert _iterator.why_not(TORCH(Large(), num_workers=1)) == ""
        assert multiprocessing.get_start_method(allow_none=True) is None
    finally:
        multiprocessing.set_start_method(was, force=True)


@pytest.fixture
def newer_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As Python 3.14, whose processes start by forkserver unless the program says otherwise."""
    methods = lambda: ["forkserver", "spawn", "fork"]  # noqa: E731
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", methods)
    was = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    yield
    multiprocessing.set_start_method(was, force=True)


@pytest.mark.usefixtures("newer_python")
def test_a_loader_without_workers_is_given_forked_ones_if_no_method_was_chosen() -> None:
    rows = TensorDataset(torch.ones(3))
    assert hazards.why_not(TORCH(rows)) == ""
    assert hazards.start_method(TORCH(rows, num_workers=1)) == "forkserver"
    multiprocessing.set_start_method("forkserver")
    assert "start by forkserver" in hazards.why_not(TORCH(rows))


@pytest.mark.parametrize("method,why", [("fork", ""), ("forkserver", "start by forkserver")])
def test_no_more_workers_are_added_where_each_is_a_copy(method: str, why: str) -> None:
    made = TORCH(Large(), num_workers=1, multiprocessing_context=method)
    assert why in few._why_not(made, Plan(1)) and bool(why) == bool(few._why_not(made, Plan(1)))
