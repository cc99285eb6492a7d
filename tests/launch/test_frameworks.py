# SPDX-License-Identifier: Apache-2.0
"""Jobs of every framework by `paceline run`, with programs that print their variables and listen at
the ports that the variables name.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

# One line for each process: what it got, once it listens at its own port, if it has one. It ends
# when all have told theirs: the launcher stops servers and schedulers at the last worker's end.
PROGRAM = """
import json, os, socket, sys, time
names, told, processes = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
seen = {name: os.environ.get(name) for name in names}
def port():
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        tasks = config["cluster"].get(config["task"]["type"])
        return tasks and tasks[config["task"]["index"]].rsplit(":", 1)[1]
    if os.environ.get("PADDLE_CURRENT_ENDPOINT"):
        return os.environ["PADDLE_CURRENT_ENDPOINT"].rsplit(":", 1)[1]
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return os.environ["MS_SCHED_PORT"]
    if os.environ.get("DMLC_ROLE") == "scheduler":
        return os.environ["DMLC_PS_ROOT_PORT"]
    return os.environ.get("PADDLE_PORT") if "TRAINING_ROLE" in os.environ else None
if port():
    server = socket.create_server(("127.0.0.1", int(port())))
os.write(1, f"saw {json.dumps(seen)}\\n".encode())
open(os.path.join(told, str(os.getpid())), "x").close()
until = time.monotonic() + 60
while len(os.listdir(told)) < processes and time.monotonic() < until:
    time.sleep(0.01)
"""


def job(folder: Path, framework: str, roles: list[dict[str, Any]], command: list[str]) -> Path:
    trainer = {"name": "trainer", "image": "none", "command": command}
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "local"},
        "spec": {
            "framework": {"type": framework, "processesPerReplica": 1},
            "roles": [{**role, "template": {"spec": {"containers": [trainer]}}} for role in roles],
        },
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(document))
    return path


def run(build: Path, path: Path) -> tuple[int, str]:
    done = subprocess.run(
        [build / "bin" / "paceline", "run", "-f", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def seen(
    build: Path, folder: Path, framework: str, roles: list[dict[str, Any]], *names: str, **more: Any
) -> list[dict[str, Any]]:
    """What each process saw of these variables."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = more.get("command", [sys.executable, "PROGRAM"])
    command = [str(program) if word == "PROGRAM" else word for word in command]
    told = folder / "told"
    told.mkdir()
    processes = sum(role["replicas"] * role.get("processes", 1) for role in roles)
    arguments = [",".join(names), str(told), str(processes)]
    code, output = run(build, job(folder, framework, roles, [*command, *arguments]))
    assert code == 0, output
    return [
        json.loads(line) for line in re.findall(r"^\[\d+\] saw (\{.*\})$", output, re.MULTILINE)
    ]


def role(name: str, kind: str = "Worker", replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "replicas": replicas, **more}


def test_tensorflow_has_one_cluster_of_distinct_ports(build: Path, tmp_path: Path) -> None:
    roles = [
        role("chief", "Coordinator"),
        role("ps", "ParameterServer"),
        role("worker", replicas=2, processes=2),
        role("evaluator", "Evaluator"),
    ]
    configs = [
        json.loads(one["TF_CONFIG"])
        for one in seen(build, tmp_path, "TensorFlow", roles, "TF_CONFIG")
    ]
    assert len(configs) == 7
    cluster = configs[0]["cluster"]
    assert {kind: len(tasks) for kind, tasks in cluster.items()} == {
        "chief": 1,
        "ps": 1,
        "worker": 4,
    }
    assert all(config["cluster"] == cluster for config in configs)
    assert len({task for tasks in cluster.values() for task in tasks}) == 6
    tasks = sorted((config["task"]["type"], config["task"]["index"]) for config in configs)
    assert tasks == [("chief", 0), ("evaluator", 0), ("ps", 0), *(("worker", i) for i in range(4))]


def test_paddle_collective(build: Path, tmp_path: Path) -> None:
    names = (
        "PADDLE_TRAINER_ID",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_CURRENT_ENDPOINT",
        "PADDLE_TRAINER_ENDPOINTS",
    )
    saw = seen(build, tmp_path, "PaddlePaddle", [role("worker", replicas=2, processes=2)], *names)
    assert sorted(one["PADDLE_TRAINER_ID"] for one in saw) == ["0", "1", "2", "3"]
    endpoints = saw[0]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert len(set(endpoints)) == 4
    for one in saw:
        assert endpoints[int(one["PADDLE_TRAINER_ID"])] == one["PADDLE_CURRENT_ENDPOINT"]


def test_paddle_with_parameter_servers(build: Path, tmp_path: Path) -> None:
    roles = [role("ps", "ParameterServer", 2), role("worker", replicas=2)]
    saw = seen(
        build,
        tmp_path,
        "PaddlePaddle",
        roles,
        "TRAINING_ROLE",
        "PADDLE_PORT",
        "PADDLE_PSERVERS_IP_PORT_LIST",
    )
    assert sorted(one["TRAINING_ROLE"] for one in saw) == [
        "PSERVER",
        "PSERVER",
        "TRAINER",
        "TRAINER",
    ]
    assert len({one["PADDLE_PORT"] for one in saw}) == 4
    servers = {
        "127.0.0.1:" + one["PADDLE_PORT"] for one in saw if one["TRAINING_ROLE"] == "PSERVER"
    }
    assert set(saw[0]["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")) == servers


def test_mindspore_meets_at_the_scheduler(build: Path, tmp_path: Path) -> None:
    roles = [role("scheduler", "Scheduler"), role("worker", replicas=2)]
    saw = seen(
        build,
        tmp_path,
        "MindSpore",
        roles,
        "MS_ROLE",
        "MS_SCHED_PORT",
        "MS_WORKER_NUM",
        "MS_NODE_ID",
    )
    assert sorted(one["MS_ROLE"] for one in saw) == ["MS_SCHED", "MS_WORKER", "MS_WORKER"]
    assert {one["MS_NODE_ID"] for one in saw} == {None, "0", "1"}
    assert len({(one["MS_SCHED_PORT"], one["MS_WORKER_NUM"]) for one in saw}) == 1


def test_byteps_has_scheduler_servers_and_workers(build: Path, tmp_path: Path) -> None:
    roles = [
        role("scheduler", "Scheduler"),
        role("server", "ParameterServer"),
        role("worker", replicas=2),
    ]
    saw = seen(build, tmp_path, "BytePS", roles, "DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_WORKER_ID")
    assert sorted(one["DMLC_ROLE"] for one in saw) == ["scheduler", "server", "worker", "worker"]
    assert {one["DMLC_NUM_WORKER"] for one in saw} == {"2"}


@pytest.mark.parametrize(
    ("framework", "address", "number"),
    [
        ("JAX", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID"),
        ("XGBoost", "dmlc_tracker_port", "dmlc_task_id"),
    ],
)
def test_workers_know_where_rank_zero_is(
    build: Path, tmp_path: Path, framework: str, address: str, number: str
) -> None:
    saw = seen(build, tmp_path, framework, [role("worker", replicas=2)], address, number)
    assert sorted(one[number] for one in saw) == ["0", "1"]
    assert len({one[address] for one in saw}) == 1


def test_deepspeeds_launcher_is_taken_over(build: Path, tmp_path: Path) -> None:
    # A script: `paceline run` finds its interpreter in the first line, as it does with pip's.
    launcher = tmp_path / "deepspeed"
    launcher.write_text(f"#!{sys.executable}\n")
    launcher.chmod(0o755)
    saw = seen(
        build,
        tmp_path,
        "DeepSpeed",
        [role("worker", replicas=2)],
        "CROSS_RANK",
        command=[str(launcher), "--num_gpus=1", "--no_local_rank", "PROGRAM"],
    )
    assert sorted(one["CROSS_RANK"] for one in saw) == ["0", "1"]


@pytest.mark.parametrize(
    ("framework", "command", "roles", "said"),
    [
        ("TensorFlow", ["deepspeed", "x.py"], [role("worker")], "spec.framework.type: DeepSpeed"),
        (
            "DeepSpeed",
            ["deepspeed", "--num_nodes=5", "x.py"],
            [role("worker")],
            "remove --num_nodes",
        ),
        (
            "TensorFlow",
            ["x"],
            [role("chief", "Coordinator", 2), role("worker")],
            "at most one chief",
        ),
        (
            "JAX",
            ["x"],
            [role("worker"), role("ps", "ParameterServer")],
            "spec.roles[1].kind: ParameterServer",
        ),
    ],
)
def test_contradictions_are_refused(
    build: Path,
    tmp_path: Path,
    framework: str,
    command: list[str],
    roles: list[dict[str, Any]],
    said: str,
) -> None:
    code, output = run(build, job(tmp_path, framework, roles, command))
    assert code == 2, output
    assert said in output, output
