# SPDX-License-Identifier: Apache-2.0
"""An autoscaler of a cloud, played on the real API server. As Cluster Autoscaler it adds a node for
each pod of its pool that the scheduler found no node for. The nodes are objects. Their kubelets are
played, too, or KWOK runs their pods.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import kwok
from kube import BUSY, ApiError, Kube, Object

POOL = "paceline.test/pool"
PERIOD_SECONDS = 0.2
HEARTBEAT_SECONDS = 2  # the cluster counts a node as lost after 8 s
LOWEST_PRIORITY = -10  # Cluster Autoscaler adds nothing for pods below
# Long enough for pods that take over a node. Cluster Autoscaler waits for ten minutes.
IDLE_SECONDS = 4


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
        self._add_nodes(pods)
        if time.monotonic() - self._beaten > HEARTBEAT_SECONDS:
            for node in self.asked:
                self._report_node(node)
            self._beaten = time.monotonic()
        for pod in pods:
            if pod["spec"].get("nodeName") in self.asked:
                self._move(pod)

    def _add_nodes(self, pods: list[Object]) -> None:
        waiting = [
            pod["metadata"]["name"]
            for pod in pods
            if pod["spec"].get("nodeSelector", {}).get(POOL) == self._pool and needs_a_node(pod)
        ]
        # One of these pods may take the node that was added for another.
        free = self.asked.keys() - {pod["spec"].get("nodeName") for pod in pods}
        for name in waiting[len(free) :]:
            node = f"{self._pool}-{len(self.asked)}"
            self._add_node(node)
            self.asked[node] = name

    def _add_node(self, node: str) -> None:
        labels = {POOL: self._pool, "kubernetes.io/hostname": node}
        self._kube.create("nodes", "", {"metadata": {"name": node, "labels": labels}})
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


class KwokAutoscaler(Autoscaler):
    """Its nodes are KWOK's. It takes a node away when nothing has run there for a while."""

    def __init__(self, kube: Kube, namespace: str, pool: str, room: dict[str, str]) -> None:
        super().__init__(kube, namespace, pool, room)
        self._busy: dict[str, float] = {}  # by node: when a pod was last seen there

    def act(self) -> None:
        self._add_nodes(self._kube.list("pods", self._namespace))
        # As Cluster Autoscaler, which asks about pods of every namespace that have not ended.
        used = {
            pod["spec"].get("nodeName")
            for pod in self._kube.list("pods")
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
        }
        now = time.monotonic()
        for node in self.asked:
            if node in used:
                self._busy[node] = now
            elif now - self._busy.get(node, now) > IDLE_SECONDS:
                self._kube.delete("nodes", "", node)
                del self._busy[node]

    def _add_node(self, node: str) -> None:
        kwok.add_node(self._kube, node, {POOL: self._pool}, self._room)


@contextmanager
def acting(autoscaler: Autoscaler) -> Iterator[Autoscaler]:
    """Lets it act on a thread of its own; its pool has no node before and after."""
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


@contextmanager
def placeholder_class(kube: Kube) -> Iterator[None]:
    """The PriorityClass of placeholders, as the chart has it."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "paceline-placeholder"},
        "value": -10,
        "preemptionPolicy": "Never",
    }
    kube.create("priorityclasses", "", body)
    yield
    kube.delete("priorityclasses", "", "paceline-placeholder")
