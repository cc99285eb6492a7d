# SPDX-License-Identifier: Apache-2.0
"""Many pods at once, on the real API server: those of others that fill the operator's watch, and
those of a gang that are deleted.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jobs import JobHandle, job
from kube import Kube, Object
from played_cluster import PlayedCluster
from test_effects import nodes_named, operator_at_work
from testbed import Operator

SPACE, OTHERS = "many", "many-others"
LOST = 30
FAILED = 500
POD_BYTES = 40_000
MIB = 1 << 20


@pytest.fixture(scope="module")
def kube(admin: Kube) -> Iterator[Kube]:
    for name in (SPACE, OTHERS):
        admin.create("namespaces", "", {"metadata": {"name": name}})
    with nodes_named(admin, SPACE):
        yield admin


def test_thirty_deleted_pods_are_back_in_seconds(kube: Kube, tmp_path: Path) -> None:
    with operator_at_work(kube, tmp_path), PlayedCluster(kube, SPACE):
        kube.create("trainingjobs", SPACE, job("wide", replicas=LOST + 10))
        handle = JobHandle(kube, SPACE, "wide")
        handle.wait_phase("Running")
        before = handle.pods()
        began = time.monotonic()
        for pod in before[-LOST:]:
            kube.delete("pods", SPACE, pod["metadata"]["name"])
        lost = {pod["metadata"]["uid"] for pod in before[-LOST:]}

        def back() -> bool:
            pods = handle.pods()
            running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            uids = {pod["metadata"]["uid"] for pod in pods}
            return len(pods) == len(running) == len(before) and not uids & lost

        kube.wait(f"{LOST} new pods run", back, SPACE, timeout=30)
        print(f"{LOST} deleted pods were back after {time.monotonic() - began:.1f} s")
        assert {pod["metadata"]["uid"] for pod in before[:-LOST]} <= set(handle.pod_uids())
        status = handle.wait_phase("Running")
        assert (status["restarts"], status["readyPods"]) == (0, len(before)), status
        handle.delete()
        kube.wait("no pod is left", lambda: not kube.list("pods", SPACE), SPACE)


def create_failed(kube: Kube, numbers: range) -> int:
    """Creates pods of no job that have failed. Answers how many bytes they are as JSON."""
    container: Object = {"name": "main", "image": "none", "args": ["x" * POD_BYTES]}
    ended: Object = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    ended |= {"ready": False, "restartCount": 0, "image": "none", "imageID": "none"}
    status = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    spec = {"nodeName": f"{SPACE}-0", "restartPolicy": "Never", "containers": [container]}
    size = 0
    for number in numbers:
        name = f"failed-{number}"
        kube.create("pods", OTHERS, {"metadata": {"name": name}, "spec": spec})
        size += len(json.dumps(kube.patch("pods", OTHERS, name, status, "status")))
    return size


def peak_with(kube: Kube, operator: Operator, pods: int) -> int:
    """The operator's memory when its cache has this many pods."""

    def cached() -> bool:
        (count,) = re.findall(
            r"^paceline_operator_cached_pods (\d+)$", operator.fetch("/metrics"), re.MULTILINE
        )
        return int(count) >= pods

    kube.wait(f"{pods} pods are cached", cached, timeout=60)
    return operator.peak_memory()


def test_failed_pods_of_others_cost_little_memory(kube: Kube, tmp_path: Path) -> None:
    """Neither when they come one by one, nor when a new operator finds all of them."""
    with operator_at_work(kube, tmp_path) as operator:
        empty = peak_with(kube, operator, 0)
        threads = 4
        with ThreadPoolExecutor(threads) as pool:
            parts = [range(i, FAILED, threads) for i in range(threads)]
            size = sum(pool.map(lambda part: create_failed(kube.again(), part), parts))
        watched = peak_with(kube, operator, FAILED)
    with operator_at_work(kube, tmp_path) as operator:
        listed = peak_with(kube, operator, FAILED)
    print(
        f"{FAILED} pods of {size / MIB:.0f} MiB:"
        f" {(watched - empty) / MIB:.1f} MiB watched, {(listed - empty) / MIB:.1f} MiB listed"
    )
    # A cache of whole objects takes at least their bytes.
    assert size > 16 * MIB and max(watched, listed) - empty < 8 * MIB
    kube.request("DELETE", kube.path("pods", OTHERS) + "?gracePeriodSeconds=0")
