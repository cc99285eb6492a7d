# SPDX-License-Identifier: Apache-2.0
"""Jobs pass through an API server that refuses, forgets, stalls and repeats itself. They end as
they would without it: no pod is left or doubled, and no restart is counted that nothing caused.

PACELINE_HOSTILE_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import JobHandle, job
from kube import Kube, Object
from played_cluster import PlayedCluster
from test_effects import operator_at_work

SPACE = "hostile"
SEED = int(os.environ.get("PACELINE_HOSTILE_SEED") or random.SystemRandom().randrange(1 << 32))
PROXY = Path(__file__).with_name("hostile_api.py")


@pytest.fixture
def kube(admin: Kube, tmp_path: Path) -> Iterator[Kube]:
    """The API server, and an operator that reaches it through the proxy."""
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
        with operator_at_work(admin, tmp_path, "hostile", config):
            yield admin
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
    created: dict[str, set[str]] = defaultdict(set)
    for event in kube.again().history("pods", SPACE, since):
        meta = event["object"]["metadata"]
        name, rank = (meta["labels"][f"paceline.dev/{key}"] for key in ("job", "node-rank"))
        phase = event["object"].get("status", {}).get("phase")
        uids = living[f"{name} {rank}"]
        created[name].add(meta["uid"])
        if event["type"] == "DELETED" or phase in ("Succeeded", "Failed"):
            uids.discard(meta["uid"])
        else:
            uids.add(meta["uid"])
        assert len(uids) <= 1, f"rank {rank} of {name} has several pods: {uids}"
    assert {name: len(uids) for name, uids in created.items()} == expected


def test_jobs_end_as_on_a_quiet_server(kube: Kube) -> None:
    since = kube.listing("pods", SPACE)["metadata"]["resourceVersion"]
    handles = {}
    with PlayedCluster(kube, SPACE) as cluster:
        for name in ("wins", "loses", "rests", "goes"):
            kube.create("trainingjobs", SPACE, job(name, cleanPodPolicy="All"))
            handles[name] = JobHandle(kube, SPACE, name)
        for handle in handles.values():
            handle.wait_phase("Running")
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
    check_history(kube, since, {"wins": 2, "loses": 3, "rests": 4, "goes": 2})
