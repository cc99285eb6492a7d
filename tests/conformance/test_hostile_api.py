# SPDX-License-Identifier: Apache-2.0
"""Jobs pass through an API server that refuses, forgets, stalls and repeats itself, and two
operators elect a leader through it, which is killed on the way. The jobs end as they would without
all that: no pod is left or doubled, no restart is counted that nothing caused, and their events
tell their end.

PACELINE_HOSTILE_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import JobHandle, job
from kube import Kube, Object
from played_cluster import PlayedCluster
from test_effects import nodes_named
from testbed import Operator

SPACE = "hostile"
SEED = int(os.environ.get("PACELINE_HOSTILE_SEED") or random.SystemRandom().randrange(1 << 32))
PROXY = Path(__file__).with_name("hostile_api.py")
PORTS = (18082, 18083)
LOST_LEASE = 1  # exit code


class Replicas:
    """Operators that elect a leader. One that ends is started again, as its Deployment does."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._keeping = threading.Lock()
        self._stopping = False
        self._ended = threading.Event()
        self._operators = []
        self.ends: list[int | None] = []
        for port in PORTS:
            own = folder / str(port)
            own.mkdir()
            flags = ["--namespace", SPACE, "--http-listen", f"127.0.0.1:{port}"]
            operator = Operator(kubeconfig, own, flags)
            operator.port = port
            operator.start()
            self._operators.append(operator)
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        # The kernel kills a child when the thread that started it ends, so this one stays.
        while not self._ended.wait(0.2):
            with self._keeping:
                for operator in [] if self._stopping else self._operators:
                    if not operator.running():
                        self.ends.append(operator.exit_code())
                        operator.start()

    def leader(self) -> Operator | None:
        for operator in self._operators:
            try:
                if "\npaceline_operator_leading 1\n" in operator.fetch("/metrics"):
                    return operator
            except OSError:
                pass  # it is being started
        return None

    def finish(self) -> None:
        with self._keeping:
            self._stopping = True
        for operator in self._operators:
            assert "internal error" not in operator.log.read_text(errors="replace")
            assert operator.stop() in (0, LOST_LEASE), operator.tail()

    def kill(self) -> None:
        with self._keeping:
            self._stopping = True
        for operator in self._operators:
            operator.stop(signal.SIGKILL)
        self._ended.set()
        self._keeper.join()


@contextmanager
def replicas_at_work(kubeconfig: Path, folder: Path) -> Iterator[Replicas]:
    replicas = Replicas(kubeconfig, folder)
    try:
        yield replicas
        replicas.finish()
        assert -signal.SIGKILL in replicas.ends
        assert set(replicas.ends) <= {-signal.SIGKILL, LOST_LEASE}, replicas.ends
    finally:
        replicas.kill()


@pytest.fixture
def replicas(admin: Kube, tmp_path: Path) -> Iterator[Replicas]:
    """Two operators that reach the API server through the proxy."""
    config = tmp_path / "hostile.kubeconfig"
    command = [sys.executable, str(PROXY), f"--kubeconfig={admin.kubeconfig}", f"--seed={SEED}"]
    proxy = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command, f"--write-kubeconfig={config}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert proxy.stdout
    print(proxy.stdout.readline().strip())
    admin.create("namespaces", "", {"metadata": {"name": SPACE}})
    try:
        with nodes_named(admin, "hostile"), replicas_at_work(config, tmp_path) as replicas:
            yield replicas
        print(finish(proxy))
    finally:
        proxy.kill()


def finish(proxy: subprocess.Popen[str]) -> Object:
    """Ends the proxy; answers how often it made each fault."""
    proxy.send_signal(signal.SIGTERM)
    made: Object = json.loads(proxy.communicate(timeout=20)[0].strip().splitlines()[-1])
    writes = sum(made.get(fault, 0) for fault in ("409", "429", "500", "lost"))
    streams = sum(made.get(fault, 0) for fault in ("cut", "stall", "repeated"))
    assert writes >= 3 and streams >= 3, f"the proxy was tame: {made}"
    return made


def check_history(kube: Kube, since: str, expected: dict[str, int]) -> None:
    """As many pods were created as on a quiet server, and no rank had two living ones."""
    living: dict[str, set[str]] = defaultdict(set)
    created: dict[str, list[str]] = defaultdict(list)
    known = set()
    for event in kube.again().history("pods", SPACE, since):
        meta = event["object"]["metadata"]
        name, rank = (meta["labels"][f"paceline.dev/{key}"] for key in ("job", "node-rank"))
        phase = event["object"].get("status", {}).get("phase")
        uids = living[f"{name} {rank}"]
        if meta["uid"] not in known:
            known.add(meta["uid"])
            created[name].append(meta["name"])
        if event["type"] == "DELETED" or phase in ("Succeeded", "Failed"):
            uids.discard(meta["uid"])
        else:
            uids.add(meta["uid"])
        assert len(uids) <= 1, f"rank {rank} of {name} has several pods: {uids}"
    counts = {name: len(pods) for name, pods in created.items()}
    assert counts == expected, f"created: {dict(created)}"


def ends_told(kube: Kube) -> set[str]:
    """Jobs with an event that tells their success."""
    events = kube.list("events", SPACE)
    return {e["involvedObject"]["name"] for e in events if e["action"] == "Succeeded"}


def test_jobs_end_as_on_a_quiet_server(admin: Kube, replicas: Replicas) -> None:
    kube = admin
    since = kube.listing("pods", SPACE)["metadata"]["resourceVersion"]
    handles = {}
    with PlayedCluster(kube, SPACE) as cluster:
        for name in ("wins", "loses", "rests", "goes"):
            kube.create("trainingjobs", SPACE, job(name, cleanPodPolicy="All"))
            handles[name] = JobHandle(kube, SPACE, name)
        for handle in handles.values():
            handle.wait_phase("Running")
        leader = kube.wait("an operator leads", replicas.leader, SPACE)
        assert leader
        leader.stop(signal.SIGKILL)
        kube.delete("pods", SPACE, "loses-worker-1-0")
        kube.patch("trainingjobs", SPACE, "rests", {"spec": {"suspend": True}})
        handles["goes"].delete()
        cluster.end("wins")
        handles["rests"].wait_condition("Suspended", "True")
        kube.patch("trainingjobs", SPACE, "rests", {"spec": {"suspend": False}})

        def replaced() -> bool:
            found = kube.find("pods", SPACE, "loses-worker-1-1")
            return found is not None and found["status"].get("phase") == "Running"

        kube.wait("the lost pod is replaced", replaced, SPACE)
        cluster.end("loses")
        handles["rests"].wait_phase("Running")
        cluster.end("rests")
        for name in ("wins", "loses", "rests"):
            status = handles[name].wait_phase("Succeeded")
            assert status["restarts"] == 0, f"{name}: {status}"
        kube.wait("no pod is left", lambda: not kube.list("pods", SPACE), SPACE)
        ended = {"wins", "loses", "rests"}
        kube.wait("events tell the ends", lambda: ended <= ends_told(kube), SPACE)
    check_history(kube, since, {"wins": 2, "loses": 3, "rests": 4, "goes": 2})
