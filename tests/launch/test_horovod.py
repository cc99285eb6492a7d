# SPDX-License-Identifier: Apache-2.0
"""Horovod jobs by `paceline run`: ranks that speak as Horovod's Gloo controller does with the store
that horovodrun would serve.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from local import run_job

# What the C++ store of Horovod sends: a connection for each request, PUT of bytes, GET until the
# key is there, and DELETE of its number at the end of each scope.
CLIENT = """
import http.client, json, os, signal, time
env = os.environ
rank, size = int(env["HOROVOD_RANK"]), int(env["HOROVOD_SIZE"])
attempt = int(env["PACELINE_ATTEMPT"])

def ask(method, scope, key, body=None):
    there = env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    connection = http.client.HTTPConnection(*there, timeout=10)
    limit = time.monotonic() + 30
    while connection.sock is None:
        try:
            connection.connect()
        except ConnectionRefusedError:
            # Rank 0's launcher may open the store a little later. Horovod tries again, too.
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)
    connection.request(method, f"/{scope}/{key}", body)
    answer = connection.getresponse()
    got = answer.status, answer.read()
    connection.close()
    return got

def meet(scope, place, members):
    assert ask("GET", scope, place)[0] == 404, "the store has keys of an earlier attempt"
    mine = bytes(range(256)) + f"{attempt} {rank}".encode()
    assert ask("PUT", scope, place, mine)[0] == 200
    met = []
    for other in range(members):
        while (got := ask("GET", scope, other))[0] == 404:
            time.sleep(0.01)
        assert got[0] == 200 and got[1].startswith(bytes(range(256))), got
        told, number = got[1][256:].decode().split()
        assert int(told) == attempt
        met.append(int(number))
    assert ask("DELETE", scope, place)[0] == 200
    return met

if attempt == 0 and rank == 1:
    while ask("GET", "global", 0)[0] == 404:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
saw = {
    "controller": env["HOROVOD_CONTROLLER"],
    "global": meet("global", rank, size),
    "local": meet("local_" + env["HOROVOD_HOSTNAME"], int(env["HOROVOD_LOCAL_RANK"]),
                  int(env["HOROVOD_LOCAL_SIZE"])),
    "cross": meet("cross_" + env["HOROVOD_LOCAL_RANK"], int(env["HOROVOD_CROSS_RANK"]),
                  int(env["HOROVOD_CROSS_SIZE"])),
}
os.write(1, f"saw {rank} {json.dumps(saw)}\\n".encode())
"""


def run(build: Path, folder: Path, command: list[str]) -> tuple[int, str]:
    (folder / "client.py").write_text(CLIENT)
    framework: dict[str, Any] = {"type": "Horovod", "processesPerReplica": 2}
    return run_job(
        build,
        folder,
        command,
        {},
        replicas=2,
        framework=framework,
        failurePolicy={"maxRestarts": 1, "backoff": "100ms"},
    )


def test_ranks_meet_at_the_store_of_their_attempt(build: Path, tmp_path: Path) -> None:
    code, output = run(
        build, tmp_path, ["horovodrun", "-np", "4", sys.executable, str(tmp_path / "client.py")]
    )
    assert code == 0, output
    assert "restart 1 of 1" in output, output
    saw = {
        int(rank): json.loads(text)
        for rank, text in re.findall(r"^\[\d+\] saw (\d) (\{.*\})$", output, re.MULTILINE)
    }
    assert set(saw) == {0, 1, 2, 3}, output
    for rank, one in saw.items():
        assert one["controller"] == "gloo"
        assert one["global"] == [0, 1, 2, 3]
        assert one["local"] == [rank // 2 * 2, rank // 2 * 2 + 1]
        assert one["cross"] == [rank % 2, rank % 2 + 2]


def test_an_elastic_job_is_refused(build: Path, tmp_path: Path) -> None:
    code, output = run(
        build, tmp_path, ["horovodrun", "--min-np", "2", "-np", "4", "python", "x.py"]
    )
    assert code == 2, output
    assert "--min-np=2 asks for an elastic job, which this job is not" in output, output
