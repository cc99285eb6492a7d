# SPDX-License-Identifier: Apache-2.0
"""Being inside someone else's program: both ways in, nothing disturbed, nothing left where nothing
trains.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rings
import torch
from ports import free_port
from programs import Train

NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)

LOOP = """
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def epoch(**options):
            for batch in DataLoader(Slow(32), batch_size=8, **options):
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
"""


def test_loader_workers_leave_no_rings(train_by_fork: Train) -> None:
    ring = train_by_fork(LOOP + "        epoch(num_workers=2)\n        epoch(num_workers=2)").only()
    assert len(ring.steps) == 8


def test_importing_torch_loads_nothing(train: Train) -> None:
    run = train("""
        assert 'libpaceline' not in open('/proc/self/maps').read()
        assert "importlib" in type(torch.__spec__.loader).__module__, torch.__spec__.loader
        """)
    assert (run.code, run.output, run.rings) == (0, "", [])


def test_a_forked_child_leaves_the_parents_ring_alone(train_by_fork: Train) -> None:
    run = train_by_fork(
        LOOP
        + """
        epoch()
        child = os.fork()
        if child == 0:
            epoch()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        epoch()
        """
    )
    assert len(run.only().steps) == 8


@pytest.mark.skipif(not NEW, reason="torchrun of PyTorch 1.13 does not start on Python 3.11")
def test_torchruns_agent_leaves_no_ring(train: Train, tmp_path: Path) -> None:
    agent = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=1",
        f"--master_port={free_port()}",
    ]
    run = train(LOOP + "        epoch()", command=[*agent, str(tmp_path / "train.py")])
    assert run.code == 0, run.output
    assert [ring.rank for ring in run.rings] == [0]


def test_the_kill_switch(train: Train) -> None:
    run = train(
        LOOP + "        epoch()\n        assert 'paceline._tracing' not in sys.modules",
        PACELINE_DISABLE="1",
    )
    assert (run.code, run.output, run.rings) == (0, "", [])


def test_a_python_without_its_lock_is_left_alone(
    train: Train, runtime: Path, tmp_path: Path
) -> None:
    # What a free-threaded build of Python 3.13 answers; others have no such function, or say True.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys._is_gil_enabled = lambda: False\n")
    run = train(
        LOOP
        + "        epoch()\n        assert 'paceline._tracing' not in sys.modules"
        + "\n        import paceline\n        print(paceline.explain())",
        PYTHONPATH=f"{runtime / 'python'}:{runtime / 'python' / 'site'}:{tmp_path}",
        PACELINE_OPTIMIZER="Auto",
    )
    why = "this Python runs without its global lock (GIL)"
    assert run.code == 0 and run.rings == []
    assert run.output.splitlines() == [
        f"paceline: PyTorch is left as it is: {why}",
        f"step tracing: off ({why})",
    ]


def test_without_the_library_training_goes_on(train: Train) -> None:
    run = train(
        LOOP + "        epoch()\n        print('trained')",
        PACELINE_LIBRARY="/nowhere/libpaceline.so",
    )
    assert run.code == 0 and run.rings == []
    said, trained = run.output.strip().splitlines()
    assert (
        said.startswith("paceline: tracing is off: OSError: /nowhere/libpaceline.so")
        and trained == "trained"
    )


def test_an_exception_while_patching_does_not_fail_the_import(
    train: Train, runtime: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "runtime"
    shutil.copytree(runtime, copy)
    (copy / "python" / "paceline" / "_tracing" / "__init__.py").write_text("raise SystemExit(3)\n")
    paths = f"{copy / 'python'}:{copy / 'python' / 'site'}"
    run = train(LOOP + "        epoch()\n        print('trained')", PYTHONPATH=paths)
    assert run.code == 0 and run.output.splitlines() == [
        "paceline: tracing is off: SystemExit: 3",
        "trained",
    ]


def test_asking_whether_torch_is_there_does_not_lose_it(
    train: Train, runtime: Path, tmp_path: Path
) -> None:
    # sitecustomize runs before the program: the user's own is the place to ask first.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\nassert importlib.util.find_spec('torch')\n"
    )
    paths = f"{runtime / 'python'}:{runtime / 'python' / 'site'}:{tmp_path}"
    run = train(LOOP + "        epoch()", PYTHONPATH=paths)
    assert len(run.only().steps) == 4


def test_python_without_torch_pays_next_to_nothing(runtime: Path) -> None:
    environment = {
        **rings.environment(runtime, ""),
        "PYTHONPATH": f"{runtime / 'python'}:{runtime / 'python' / 'site'}",
    }
    program = "import sys; print(*sys.modules)"

    def modules(extra: dict[str, str]) -> set[str]:
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env={**environment, **extra}, stdout=subprocess.PIPE, text=True, check=True
        )
        return set(done.stdout.split())

    loaded = modules({}) - modules({"PACELINE_DISABLE": "1"})
    assert "paceline._core.imports" in loaded
    assert loaded <= {"__future__", "paceline", "paceline._core", "paceline._core.imports"}


def test_an_unknown_signature_is_left_alone_with_one_line(train_by_fork: Train) -> None:
    run = train_by_fork(
        """
        save = torch.save
        from paceline import _tracing
        from paceline._tracing import _patching
        _tracing.uninstall()
        assert torch.save is not save
        original = torch.autograd.backward
        _patching.TESTED["torch.autograd.backward"] = [("tensors",)]
        _tracing.install(torch)
        assert torch.autograd.backward is original
        """
        + LOOP
        + "        epoch()\n        import paceline\n        print(paceline.explain())"
    )
    lines = run.output.splitlines()
    assert lines[0].startswith("paceline: torch.autograd.backward is not traced")
    assert any(line.startswith("  torch.autograd.backward: off") for line in lines)
    assert len(run.only().steps) == 4
    assert run.rings[0].total("backward") == 0


@pytest.mark.parametrize(
    "body,expected",
    [("print('theirs')", "theirs"), ("raise ValueError('theirs')", "ValueError: theirs")],
)
def test_the_users_sitecustomize_still_runs(
    runtime: Path, tmp_path: Path, body: str, expected: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"own = 5\n{body}\n")
    ours = rings.environment(runtime, "")
    program = "import sys, sitecustomize; print(getattr(sitecustomize, 'own', None))"

    def say(environment: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return f"{done.returncode} {done.stdout} {done.stderr}"

    chained = say({**ours, "PYTHONPATH": f"{ours['PYTHONPATH']}:{tmp_path}"})
    assert expected in chained
    if "print" in body:
        assert chained == say({**ours, "PYTHONPATH": str(tmp_path)}), "as if ours were not there"


def test_pytorchs_objects_stay_its_own(train_by_fork: Train) -> None:
    run = train_by_fork(
        LOOP
        + """
        import copy, inspect, io, pickle, warnings
        warnings.simplefilter("error")
        epoch()
        assert type(optimizer) is torch.optim.SGD and type(optimizer).step.hooked
        again = pickle.loads(pickle.dumps(optimizer))
        assert type(again) is torch.optim.SGD and copy.deepcopy(optimizer).state_dict() == optimizer.state_dict()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer.step()
        schedule.step()
        assert list(inspect.signature(torch.autograd.backward).parameters)[0] == "tensors"
        assert list(inspect.signature(torch.save).parameters)[:2] == ["obj", "f"]
        buffer = io.BytesIO()
        torch.save(model, buffer)
        class Mine(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)
        mine = Mine(model.parameters(), lr=0.1)
        for batch in DataLoader(Slow(16), batch_size=8):
            loss_of(model, batch).backward()
            mine.step()
        loss = loss_of(model, batch)
        loss.backward()
        assert not loss._backward_hooks
        warnings.simplefilter("ignore")  # TorchScript itself is deprecated
        @torch.jit.script
        def scripted(x: torch.Tensor) -> torch.Tensor:
            torch.autograd.backward([x.sum()])
            return x
        """
    )
    assert run.code == 0, run.output


@pytest.mark.parametrize(
    ("ending", "noted"),
    [
        ("raise ValueError('the reason')", "own"),
        ("raise CommError('rank 1 gave up', 1, of_peer=True)", "peer"),
        ("raise CommError('rank 0 gave up', 0)", "own"),
        ("raise RuntimeError('[pair.cc:561] Connection closed by peer [127.0.0.1]:46997')", "peer"),
        (
            (
                "try: raise ConnectionResetError(104, 'Connection reset by peer')\nexcept OSError:"
                " raise ValueError()"
            ),
            "peer",
        ),
        ("class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd()", "own"),
        (
            (
                "try: raise CommError('lost', 1, of_peer=True)\nexcept CommError as e: raise"
                " OSError() from e"
            ),
            "peer",
        ),
        (
            "try: raise CommError('lost', 1, of_peer=True)\nexcept CommError: raise OSError()",
            "peer",
        ),
        (
            (
                "try: raise CommError('lost', 1, of_peer=True)\nexcept CommError: raise OSError()"
                " from None"
            ),
            "own",
        ),
        ("sys.excepthook = lambda *error: sys.__excepthook__(*error)\nraise ValueError()", "own"),
        ("try: int('x')\nexcept ValueError: sys.excepthook(*sys.exc_info())\nsys.exit(1)", ""),
        ("try: int('x')\nexcept ValueError: sys.excepthook(*sys.exc_info())\nint('y')", "own"),
        ("sys.exit(1)", ""),
        ("try: raise ValueError()\nexcept ValueError: pass\nsys.exit(0)", ""),
        (
            (
                "thread = threading.Thread(target=int,"
                " args=['x'])\nthread.start()\nthread.join()\nsys.exit(1)"
            ),
            "",
        ),
        ("if os.fork() == 0: raise ValueError()\nos.wait()", ""),
        ("subprocess.run([sys.executable, '-c', 'raise ValueError'])", ""),
    ],
)
def test_an_exception_that_ends_a_rank_is_noted_at_once(
    runtime: Path, tmp_path: Path, ending: str, noted: str
) -> None:
    file = tmp_path / "failed"
    program = (
        "import atexit, os, subprocess, sys, threading\n"
        "assert sys.excepthook is sys.__excepthook__\n"
        "class CommError(RuntimeError):\n"
        "    def __init__(self, text, rank, of_peer=False):\n"
        "        self.of_peer = of_peer\n"
        "print(os.getpid(), flush=True)\n"
        f"atexit.register(lambda: print(os.path.exists({str(file)!r})))\n" + ending
    )
    python = runtime / "python"
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{python}/site:{python}",
        "PACELINE_FAILURE_FILE": str(file),
    }
    file.write_text("5 own 7\n")  # of a program that ran before
    before = time.monotonic_ns()
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.splitlines()[-1] == str(bool(noted)), run
    assert sorted(path.name for path in tmp_path.iterdir()) == (["failed"] if noted else [])
    if noted:
        told, what, process = file.read_text().split()
        assert (what, process) == (noted, run.stdout.split()[0])
        assert before <= int(told) <= time.monotonic_ns()
        assert run.stderr.startswith("Traceback"), run.stderr


def test_the_profiler_coexists(train_by_fork: Train) -> None:
    run = train_by_fork(
        LOOP
        + """
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            epoch()
        names = {event.key for event in profile.key_averages()}
        assert any(name.startswith("Optimizer.step#SGD") for name in names), names
        assert any("dataloader" in name.lower() for name in names), names
        """
    )
    assert len(run.only().steps) == 4


@pytest.mark.skipif(not NEW, reason="torch.compile came with PyTorch 2")
def test_compiled_programs_compile_as_before(train_by_fork: Train) -> None:
    run = train_by_fork("""
        import torch._dynamo
        def count(traced):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            model = small()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            compiled = torch.compile(model, backend="eager")
            step = torch.compile(lambda: optimizer.step(), backend="eager")
            for batch in DataLoader(Slow(32), batch_size=8):
                optimizer.zero_grad()
                loss_of(compiled, batch).backward()
                step()
            return dict(torch._dynamo.utils.counters["stats"]), dict(torch._dynamo.utils.counters["graph_break"])
        with_marks = count(True)
        from paceline import _tracing
        _tracing.uninstall()
        assert with_marks == count(False), with_marks
        """)
    assert run.code == 0, run.output


def test_batches_from_a_thread_of_the_program(train_by_fork: Train) -> None:
    ring = train_by_fork("""
        import queue
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ready = queue.Queue(2)
        def prefetch():
            for batch in DataLoader(Slow(64), batch_size=8):
                ready.put(batch)
            ready.put(None)
        thread = threading.Thread(target=prefetch)
        thread.start()
        while (batch := ready.get()) is not None:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        thread.join()
        """).only()
    assert len(ring.steps) == 8


def test_a_restarted_receiver_is_offered_the_same_ring(
    train_by_fork: Train, tmp_path: Path
) -> None:
    def restart(receiver: rings.Receiver) -> None:
        deadline = time.monotonic() + 60
        while not receiver.rings and time.monotonic() < deadline:
            time.sleep(0.02)
        receiver.hang_up()
        (tmp_path / "restarted").touch()

    # Fewer steps in all than a ring holds: the second receiver reads those from before it, too.
    run = train_by_fork(
        LOOP
        + """
        limit = time.monotonic() + 10
        while not os.path.exists("restarted") and time.monotonic() < limit:
            epoch()
            time.sleep(0.05)
        for _ in range(40):
            epoch()
            time.sleep(0.05)
        """,
        during=restart,
    )
    assert run.code == 0 and len(run.rings) == 2
    first, second = run.rings
    assert (first.pid, first.epoch) == (second.pid, second.epoch)
    assert [record.seq for record in first.records] == [record.seq for record in second.records]
