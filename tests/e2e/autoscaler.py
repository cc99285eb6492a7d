# SPDX-License-Identifier: Apache-2.0
"""An autoscaler of a cloud, played on the real API server. As Cluster Autoscaler it adds a node for
each pod of its pool that the scheduler found no node for. The nodes are objects: their kubelets are
played, too.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kube import BUSY, ApiError, Kube, Object

POOL = "paceline.test/pool"
PERIOD_SECONDS = 0.2
HEARTBEAT_SECONDS = 2  # the cluster counts a node as lost after 8 s
LOWEST_PRIORITY = -10  # Cluster Autoscaler adds nothing for pods below


def needs_a_node(pod: Object) -> bool:
    """A pod that is pinned to a node gains nothing by another one."""
    spec = pod["spec"]
    if "affinity" in spec or spec.get("priority", 0) < LOWEST_PRIORITY:
        return False
    return any(
        (condition["type"], condition["status"], condition.get("reason"))
        == ("PodScheduled", "False", "Unschedulable")
        for condition in pod["status"].get("conditions", [])
    )


class Autoscaler:
    """Acts when told. `asked`: the pod that each node was added for."""

    def __init__(self, kube: Kube, namespace: str, pool: str, room: dict[str, str]) -> None:
        self._kube = kube
        self._namespace = namespace
        self._pool = pool
        self._room = room
        self._beaten = 0.0
        self.asked: dict[str, str] = {}

    def act(self) -> None:
        pods = self._kube.list("pods", self._namespace)
        for pod in pods:
            name = pod["metadata"]["name"]
            ours = pod["spec"].get("nodeSelector", {}).get(POOL) == self._pool
            if ours and needs_a_node(pod) and name not in self.asked.values():
                self._add_node(name)
        if time.monotonic() - self._beaten > HEARTBEAT_SECONDS:
            for node in self.asked:
                self._report_node(node)
            self._beaten = time.monotonic()
        for pod in pods:
            if pod["spec"].get("nodeName") in self.asked:
                self._move(pod)

    def _add_node(self, pod: str) -> None:
        node = f"{self._pool}-{len(self.asked)}"
        labels = {POOL: self._pool, "kubernetes.io/hostname": node}
        self._kube.create("nodes", "", {"metadata": {"name": node, "labels": labels}})
        self.asked[node] = pod
        self._report_node(node)

    def _report_node(self, node: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"capacity": self._room, "allocatable": self._room, "conditions": [ready]}
        self._kube.patch("nodes", "", node, {"status": status}, "status")

    def _move(self, pod: Object) -> None:
        """One step of one pod, as its kubelet takes it."""
        name = pod["metadata"]["name"]
        try:
            if "deletionTimestamp" in pod["metadata"]:
                self._kube.delete("pods", self._namespace, name, gracePeriodSeconds="0")
            elif pod["status"].get("phase") == "Pending":
                started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
                container = {"name": pod["spec"]["containers"][0]["name"], "state": started}
                container |= {"ready": True, "restartCount": 0, "image": "none", "imageID": "none"}
                status = {"phase": "Running", "containerStatuses": [container]}
                self._kube.patch("pods", self._namespace, name, {"status": status}, "status")
        except ApiError as error:
            if error.code not in (404, 409):  # the operator was faster
                raise

    def remove_nodes(self) -> None:
        for node in self.asked:
            self._kube.delete("nodes", "", node)


@contextmanager
def growing_pool(
    kube: Kube, namespace: str, pool: str, room: dict[str, str]
) -> Iterator[Autoscaler]:
    """A pool without nodes, whose autoscaler acts on a thread of its own. `room`: of each node."""
    autoscaler = Autoscaler(kube.again(), namespace, pool, room)
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(PERIOD_SECONDS):
            try:
                autoscaler.act()
            except (OSError, http.client.HTTPException):
                pass  # the next period repeats it
            except ApiError as error:
                if error.code not in BUSY:
                    raise

    try:
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(run)
            try:
                yield autoscaler
            finally:
                stop.set()
            running.result()
    finally:
        autoscaler.remove_nodes()
