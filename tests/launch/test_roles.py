# SPDX-License-Identifier: Apache-2.0
"""Jobs whose roles have kinds: who ends the job, who is stopped, and who starts first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from local import run_job

# Ends only when it is told to, and then with an exit code of its own.
SERVES = "trap 'exit 3' TERM; while :; do sleep 0.05; done"
# In a command `$$` is a dollar sign, as in Kubernetes.
KILLS_ITSELF = "kill -9 $$$$"
# The 22nd field of the line: when the launcher started the shell. A process of the shell's own
# starts whenever the machine has time for it.
STARTED = "cut -d ' ' -f 22 /proc/$$$$/stat"


def role(name: str, kind: str, script: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    trainer = {"name": "trainer", "image": "none", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [trainer]}}
    return {"name": name, "kind": kind, "replicas": replicas, "template": template, **more}


def run_roles(build: Path, folder: Path, *roles: dict[str, Any], **spec: Any) -> tuple[int, str]:
    return run_job(build, folder, [], {}, framework={"type": "Custom"}, roles=list(roles), **spec)


def test_servers_are_stopped_when_the_workers_are_done(build: Path, tmp_path: Path) -> None:
    code, output = run_roles(
        build, tmp_path, role("ps", "ParameterServer", SERVES, 2), role("w", "Worker", "exit 0", 2)
    )
    assert code == 0, output
    assert "all ranks exited with code 0" in output, output


def test_rank_zero_may_live_beside_a_server_that_hosts_the_rendezvous(
    build: Path, tmp_path: Path
) -> None:
    late = '[ "$RANK" = 0 ] && exit 0; exec sleep 1000'
    code, output = run_roles(
        build,
        tmp_path,
        role("ps", "ParameterServer", SERVES),
        role("w", "Worker", late, 2),
        successPolicy="RankZero",
    )
    assert code == 0, output
    assert "rank 0 exited with code 0" in output, output


def test_an_evaluator_that_fails_fails_nothing(build: Path, tmp_path: Path) -> None:
    # The launcher has seen the evaluator's end when there is no such process any more.
    gone = "[ -s failed ] && read pid < failed && ! kill -0 $pid 2>/dev/null"
    wait = f"until {gone}; do sleep 0.05; done; sleep 5"
    code, output = run_roles(
        build,
        tmp_path,
        role("w", "Worker", wait, 2),
        role("eval", "Evaluator", "echo $$$$ > failed; exit 5"),
        failurePolicy={"maxRestarts": 0},
    )
    assert code == 0, output
    assert "exited with code 5: it is an evaluator" in output, output


def test_workers_start_after_the_servers(build: Path, tmp_path: Path) -> None:
    # The launcher stops the server when the workers are done, which may be before it has written.
    worker = f"{STARTED} > worker-$RANK; until [ -s server ]; do sleep 0.05; done"
    code, output = run_roles(
        build,
        tmp_path,
        role("w", "Worker", worker, 2, startAfter="ps"),
        role("ps", "ParameterServer", f"{STARTED} > server; {SERVES}"),
    )
    assert code == 0, output
    assert "the 2 of stage 1 start" in output, output
    server, *workers = (
        int((tmp_path / name).read_text()) for name in ("server", "worker-0", "worker-1")
    )
    assert server <= min(workers), output


def test_a_worker_that_is_killed_starts_again_while_the_others_go_on(
    build: Path, tmp_path: Path
) -> None:
    worker = (
        "echo x >> starts-$RANK; "
        'if [ "$RANK" = 1 ] && [ ! -e killed ]; then touch killed; ' + KILLS_ITSELF + "; fi; "
        'until [ "$(wc -l < starts-1)" = 2 ] && [ -s starts-ps ]; do sleep 0.05; done'
    )
    code, output = run_roles(
        build,
        tmp_path,
        role("ps", "ParameterServer", f"echo x >> starts-ps; {SERVES}"),
        role("w", "Worker", worker, 3),
    )
    assert code == 0, output
    assert "rank 1 on" in output, output
    assert "its replica restarts and the others go on" in output, output
    starts = {name: (tmp_path / f"starts-{name}").read_text() for name in ("ps", "0", "1", "2")}
    assert starts == {"ps": "x\n", "0": "x\n", "1": "x\nx\n", "2": "x\n"}, output


def test_a_server_that_is_killed_restarts_the_gang(build: Path, tmp_path: Path) -> None:
    server = f"if [ ! -e killed ]; then touch killed; {KILLS_ITSELF}; fi; {SERVES}"
    worker = "echo $PACELINE_ATTEMPT > attempt; [ $PACELINE_ATTEMPT = 1 ] || exec sleep 1000"
    code, output = run_roles(
        build, tmp_path, role("ps", "ParameterServer", server), role("w", "Worker", worker)
    )
    assert code == 0, output
    assert (tmp_path / "attempt").read_text() == "1\n"
