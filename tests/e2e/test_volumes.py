# SPDX-License-Identifier: Apache-2.0
"""Claims that get their volume from kube-scheduler, on the node that Paceline chose: volumes made by
hand, each within reach of one node, of a StorageClass that waits for a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object

Submit = Callable[[Object], JobHandle]
HOST = "kubernetes.io/hostname"


@dataclass
class Storage:
    """A StorageClass without a provisioner, and its volumes."""

    kube: Kube
    name: str
    volumes: list[str] = field(default_factory=list)

    def spec(self) -> Object:
        """Of a claim."""
        return {
            "storageClassName": self.name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        }

    def add_volume(self, node: Object) -> None:
        name = f"{self.name}-{len(self.volumes)}"
        host = node["metadata"]["labels"][HOST]
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [host]}]}
        spec = {
            "storageClassName": self.name,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Mi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/tmp"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        self.kube.create("persistentvolumes", "", {"metadata": {"name": name}, "spec": spec})
        self.volumes.append(name)

        def is_free() -> bool:
            volume = self.kube.get("persistentvolumes", "", name)
            return volume.get("status", {}).get("phase") == "Available"

        self.kube.wait(f"{name} is free", is_free)


@pytest.fixture
def storage(kube: Kube, namespace: str) -> Iterator[Storage]:
    made = Storage(kube, f"by-hand-{namespace}")
    kube.create(
        "storageclasses",
        "",
        {
            "metadata": {"name": made.name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    yield made
    for volume in made.volumes:
        kube.delete("persistentvolumes", "", volume)
    kube.delete("storageclasses", "", made.name)


def mounting(name: str, volume: Object, **spec: Any) -> Object:
    """A job of two pods that mount the volume."""
    body = job(name, UNTIL_TOLD, replicas=2, **spec)
    pod = body["spec"]["roles"][0]["template"]["spec"]
    pod["volumes"] = [{"name": "data", **volume}]
    pod["containers"][0]["volumeMounts"] = [
        {"name": "data", "mountPath": "/data", "readOnly": True}
    ]
    return body


def nodes_of(handle: JobHandle) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in handle.pods()]


def test_a_claim_that_waits_for_its_pod_takes_the_gang_to_its_volume(
    kube: Kube, submit: Submit, namespace: str, storage: Storage
) -> None:
    """On each node in turn, since one of them could be the planner's choice anyway."""
    for node in kube.list("nodes"):
        name = node["metadata"]["name"]
        storage.add_volume(node)
        claim = {"metadata": {"name": name}, "spec": storage.spec()}
        kube.create("persistentvolumeclaims", namespace, claim)
        handle = submit(mounting(f"on-{name}", {"persistentVolumeClaim": {"claimName": name}}))
        handle.wait_started(0, 2)
        assert nodes_of(handle) == [name, name]
        bound = kube.get("persistentvolumeclaims", namespace, name)
        assert bound["spec"]["volumeName"] == storage.volumes[-1]
        handle.tell()
        handle.wait_phase("Succeeded")


def test_each_pod_gets_a_claim_of_its_own(
    kube: Kube, submit: Submit, namespace: str, storage: Storage
) -> None:
    nodes = kube.list("nodes")
    for node in nodes[:2]:
        storage.add_volume(node)
    own = {"ephemeral": {"volumeClaimTemplate": {"spec": storage.spec()}}}
    handle = submit(mounting("own", own, scheduling={"podsPerNode": 1}))
    handle.wait_started(0, 2)
    assert sorted(nodes_of(handle)) == sorted(node["metadata"]["name"] for node in nodes[:2])
    claims = kube.list("persistentvolumeclaims", namespace)
    assert sorted(claim["metadata"]["name"] for claim in claims) == [
        f"{name}-data" for name in sorted(handle.pod_names())
    ]
    assert sorted(claim["spec"]["volumeName"] for claim in claims) == storage.volumes
    handle.tell()
    handle.wait_phase("Succeeded")


def test_a_job_without_a_free_volume_waits_for_one(
    kube: Kube, submit: Submit, namespace: str, storage: Storage
) -> None:
    claim = {"metadata": {"name": "late"}, "spec": storage.spec()}
    kube.create("persistentvolumeclaims", namespace, claim)
    handle = submit(mounting("late", {"persistentVolumeClaim": {"claimName": "late"}}))
    refusal = handle.wait_condition("Placed", "False", "NoFreeVolume")
    assert "volumes[0].persistentVolumeClaim.claimName" in refusal["message"]
    assert storage.name in refusal["message"] and handle.pods() == []
    storage.add_volume(kube.list("nodes")[0])
    handle.wait_started(0, 2)
    handle.tell()
    handle.wait_phase("Succeeded")
