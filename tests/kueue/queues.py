# SPDX-License-Identifier: Apache-2.0
"""Kueue's objects for a test: a ClusterQueue and LocalQueue of a known quota, and questions about
Workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jobs import IMAGE, JobHandle, job
from kube import GROUPS, Kube, Object

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
GROUPS.update(
    {
        **dict.fromkeys(
            (
                "clusterqueues",
                "localqueues",
                "resourceflavors",
                "topologies",
                "workloadpriorityclasses",
                "workloads",
            ),
            KUEUE,
        ),
    }
)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
POOL = "tests.paceline.dev/pool"  # a label of every node; its value is the node's name
POD_CPU = 50  # millicores, as jobs.trainer has them


def millicores(quantity: Any) -> int:
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else int(Decimal(text) * 1000)


def condition(body: Object, kind: str) -> Object:
    """The condition, or an empty one."""
    found = [c for c in body.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {"status": "", "reason": "", "message": ""}


def make_flavor(kube: Kube, name: str, **spec: Any) -> str:
    """Creates a ResourceFlavor; one that a kept cluster has is the same."""
    if kube.find("resourceflavors", "", name) is None:
        _create(kube, "resourceflavors", "ResourceFlavor", "", name, spec)
    return name


def make_topology(kube: Kube, name: str, *labels: str) -> str:
    """Creates a Topology of these levels, from the widest to the closest."""
    if kube.find("topologies", "", name) is None:
        spec = {"levels": [{"nodeLabel": label} for label in labels]}
        _create(kube, "topologies", "Topology", "", name, spec)
    return name


def _create(kube: Kube, resource: str, kind: str, namespace: str, name: str, spec: Object) -> None:
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind}
    kube.create(resource, namespace, {**body, "metadata": {"name": name}, "spec": spec})


@dataclass
class Queue:
    """A LocalQueue and its ClusterQueue, both named after the test's namespace."""

    kube: Kube
    namespace: str
    flavor: str

    @property
    def name(self) -> str:
        return self.namespace

    def create(self, pods: int, more: Sequence[str] = (), **cluster_queue: Any) -> None:
        """`pods`: how many pods of a job the quota holds; `more`: flavors beside its own, with the
        same quota each.
        """
        quota = [
            {"name": "cpu", "nominalQuota": f"{pods * POD_CPU}m"},
            {"name": "memory", "nominalQuota": "1Gi"},
        ]
        group = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": name, "resources": quota} for name in (self.flavor, *more)],
        }
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
            **cluster_queue,
        }
        _create(self.kube, "clusterqueues", "ClusterQueue", "", self.name, spec)
        local = {"clusterQueue": self.name}
        _create(self.kube, "localqueues", "LocalQueue", self.namespace, self.name, local)

    def wait_flavors(self) -> None:
        """Waits until Kueue has said which flavors the LocalQueue has."""

        def told() -> bool:
            status = self.kube.get("localqueues", self.namespace, self.name).get("status", {})
            return bool(status.get("flavorsReservation"))

        self.kube.wait(f"Kueue names the flavors of {self.name}", told, self.namespace)

    def delete(self) -> None:
        self.kube.delete("clusterqueues", "", self.name)

    def stop(self, policy: str) -> None:
        self.kube.patch("clusterqueues", "", self.name, {"spec": {"stopPolicy": policy}})

    def reserved(self) -> int:
        """Millicores that Kueue counts as reserved."""
        status = self.kube.get("clusterqueues", "", self.name).get("status", {})
        return sum(
            millicores(resource["total"])
            for flavor in status.get("flavorsReservation", [])
            for resource in flavor["resources"]
            if resource["name"] == "cpu"
        )

    def wait_reserved(self, pods: int) -> None:
        self.kube.wait(
            f"quota of {pods} pods is reserved",
            lambda: self.reserved() == pods * POD_CPU,
            self.namespace,
        )

    def training_job(self, name: str, script: str, priority: str = "", **spec: Any) -> Object:
        body = job(name, script, **spec)
        body["metadata"]["labels"] = {QUEUE_LABEL: self.name}
        if priority:
            body["metadata"]["labels"][PRIORITY_LABEL] = priority
        return body

    def batch_job(self, name: str, script: str, pods: int) -> Object:
        """A Job of Kubernetes that Kueue itself suspends and starts."""
        container = {
            "name": "trainer",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", script],
            "resources": {"requests": {"cpu": f"{POD_CPU}m", "memory": "32Mi"}},
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {QUEUE_LABEL: self.name}},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }

    def most_pods(self, since: str) -> int:
        """The most pods that used quota at once since a version of the list of pods."""
        live: set[str] = set()
        most = 0
        for event in self.kube.history("pods", self.namespace, since):
            pod = event["object"]
            ended = pod["status"].get("phase") in ("Succeeded", "Failed")
            if event["type"] == "DELETED" or ended:
                live.discard(pod["metadata"]["uid"])
            else:
                live.add(pod["metadata"]["uid"])
            most = max(most, len(live))
        return most


def workload(handle: JobHandle) -> Object | None:
    """The job's Workload; None if there is none."""
    found = [
        item
        for item in handle.kube.list("workloads", handle.namespace)
        for owner in item["metadata"].get("ownerReferences", [])
        if owner["kind"] == "TrainingJob" and owner["name"] == handle.name
    ]
    assert len(found) <= 1, f"{handle.name} has {len(found)} Workloads"
    return found[0] if found else None


def wait_workload(handle: JobHandle, what: str, fits: Callable[[Object], bool]) -> Object:
    def reached() -> Object | None:
        found = workload(handle)
        return found if found and fits(found) else None

    about = f"the Workload of {handle.name}: {what}"
    try:
        result = handle.kube.wait(about, reached, handle.namespace)
    except AssertionError as error:
        shown = (workload(handle) or {}).get("status")
        raise AssertionError(f"{error}\nits status: {shown}") from None
    assert result
    return result


def wait_condition(handle: JobHandle, kind: str, status: str, reason: str = "") -> Object:
    def fits(body: Object) -> bool:
        found = condition(body, kind)
        return found["status"] == status and (not reason or found["reason"] == reason)

    return wait_workload(handle, f"{kind}={status} {reason}", fits)


def wait_stopped(handle: JobHandle) -> None:
    """Waits until no pod of the job is left."""
    handle.kube.wait(
        f"no pod of {handle.name} is left", lambda: not handle.pods(), handle.namespace
    )
