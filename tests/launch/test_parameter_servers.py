# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training with a parameter server, by `paceline run`. A linear model learns while a
worker is away, and goes on from the server's checkpoint after the server died. The job ends when the
workers are done. The program finds its peers by the variables of PaddlePaddle.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from local import run_job

STEPS, EVERY, AWAY, DEAD = 600, 20, 40, 110

# The server applies gradients in the order in which they come, and keeps its weights in a file every
# EVERY steps. `LOSES` is what dies once: the worker at its 10th gradient, the server at step DEAD.
# The new worker waits for AWAY gradients that the server took without it.
PROGRAM = """
import json, os, random, signal, socket, sys, time
STEPS, EVERY, AWAY, DEAD = map(int, sys.argv[1:5])
TRUTH = [1.0, -2.0, 0.5]
loses = os.environ["LOSES"]

def die_once():
    open("died", "x").close()
    os.kill(os.getpid(), signal.SIGKILL)

def say(line):
    os.write(1, (line + "\\n").encode())

def serve():
    step, weights, alone = 0, [0.0] * 3, 0
    if os.path.exists("weights"):
        step, weights = json.load(open("weights"))
        say(f"server resumed at step {step}")
    listener = socket.create_server(("127.0.0.1", int(os.environ["PADDLE_PORT"])))
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            rank, gradient = json.loads(stream.readline())
            if gradient:
                weights = [w - 0.05 * g for w, g in zip(weights, gradient)]
                step += 1
                alone = alone + 1 if rank == 0 and os.path.exists("died") else 0
                if step % EVERY == 0:
                    with open("weights.new", "w") as file:
                        json.dump([step, weights], file)
                    os.replace("weights.new", "weights")
            if loses == "server" and step == DEAD and not os.path.exists("died"):
                die_once()
            stream.write(json.dumps([step, weights, alone]))

def ask(rank, gradient):
    host, port = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].rsplit(":", 1)
    while True:
        try:
            with socket.create_connection((host, int(port))) as connection:
                with connection.makefile("rw") as stream:
                    stream.write(json.dumps([rank, gradient]) + "\\n")
                    stream.flush()
                    return json.loads(stream.readline())
        except (OSError, ValueError):  # the server is not there yet, or has died
            time.sleep(0.01)

def train(rank):
    say(f"worker {rank} starts")
    # One worker alone could bring the server to step DEAD before the other one has begun.
    open(f"started-{rank}", "w").close()
    while not (os.path.exists("started-0") and os.path.exists("started-1")):
        time.sleep(0.01)
    back = rank == 1 and loses == "worker" and os.path.exists("died")
    step, weights, alone = ask(rank, [])
    while back and alone < AWAY:
        time.sleep(0.01)
        step, weights, alone = ask(rank, [])
    given = 0
    # Worker 0 goes on until the other one is back and has given 10 gradients more.
    while (step < STEPS or (back and given < 10)
           or (rank == 0 and loses == "worker" and not os.path.exists("back"))):
        inputs = [random.gauss(0, 1) for _ in TRUTH]
        error = sum((w - t) * x for w, t, x in zip(weights, TRUTH, inputs))
        step, weights, _ = ask(rank, [2 * error * x for x in inputs])
        given += 1
        if rank == 1 and loses == "worker" and not back and given == 10:
            die_once()
        if back and given == 10:
            open("back", "x").close()
    loss = sum((w - t) ** 2 for w, t in zip(weights, TRUTH))
    say(f"worker {rank} gave {given} of {step} steps, distance {loss:.6f}, alone {alone}")

if os.environ["TRAINING_ROLE"] == "PSERVER":
    serve()
train(int(os.environ["PADDLE_TRAINER_ID"]))
"""
RESULT = re.compile(
    r"^\[\d+\] worker (\d) gave (\d+) of (\d+) steps, distance (\S+), alone (\d+)$", re.MULTILINE
)


def train(build: Path, folder: Path, loses: str) -> str:
    """The output of a job with one server and two workers, after it has succeeded."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    numbers = [str(number) for number in (STEPS, EVERY, AWAY, DEAD)]
    trainer = {
        "name": "trainer",
        "image": "none",
        "command": [sys.executable, str(program), *numbers],
        "env": [{"name": "LOSES", "value": loses}],
    }
    template = {"spec": {"containers": [trainer]}}
    roles = [
        {"name": "ps", "kind": "ParameterServer", "replicas": 1, "template": template},
        {"name": "worker", "replicas": 2, "template": template},
    ]
    framework = {"type": "PaddlePaddle", "processesPerReplica": 1}
    policy = {"maxRestarts": 1, "backoff": "100ms"}
    code, output = run_job(
        build, folder, [], {}, framework=framework, roles=roles, failurePolicy=policy
    )
    assert code == 0, output
    # The server does not end by itself: the job ended with its workers.
    assert "all ranks exited with code 0" in output, output
    learned = {int(rank): float(distance) for rank, _, _, distance, _ in RESULT.findall(output)}
    assert set(learned) == {0, 1} and max(learned.values()) < 1e-3, output
    return output


def starts(output: str) -> list[int]:
    return [int(rank) for rank in re.findall(r"\] worker (\d) starts$", output, re.MULTILINE)]


def test_training_goes_on_while_a_worker_is_away(build: Path, tmp_path: Path) -> None:
    output = train(build, tmp_path, "worker")
    assert sorted(starts(output)) == [0, 1, 1], output
    assert "server resumed" not in output, output
    assert "its replica restarts and the others go on" in output, output
    given = {int(rank): int(count) for rank, count, _, _, _ in RESULT.findall(output)}
    assert given[0] >= AWAY and given[1] >= 10, output


def test_training_resumes_from_the_checkpoint_of_a_dead_server(build: Path, tmp_path: Path) -> None:
    output = train(build, tmp_path, "server")
    assert sorted(starts(output)) == [0, 0, 1, 1], output
    assert f"server resumed at step {DEAD // EVERY * EVERY}\n" in output, output
    step, _ = json.loads((tmp_path / "weights").read_text())
    assert step >= STEPS
