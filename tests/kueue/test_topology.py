# SPDX-License-Identifier: Apache-2.0
"""Jobs of a flavor with a topology: Kueue says which node each pod goes to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controller import Kueue
from jobs import UNTIL_TOLD, JobHandle
from kube import Kube, Object
from queues import Queue, make_flavor, make_topology, wait_condition

HOST = "kubernetes.io/hostname"

Submit = Callable[[Object], JobHandle]


@pytest.fixture(scope="session")
def flavor(kube: Kube, kueue: Kueue) -> str:
    """A flavor of every node; here the fixture `queue` takes this one."""
    topology = make_topology(kube, "hosts", HOST)
    return make_flavor(
        kube, "hosts", nodeLabels={"kubernetes.io/os": "linux"}, topologyName=topology
    )


def nodes_of(handle: JobHandle) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in handle.pods()]


def assigned(workload: Object) -> list[str]:
    """The node of each pod by Kueue's assignment, whose only level is the host."""
    (set_of_pods,) = workload["status"]["admission"]["podSetAssignments"]
    nodes: list[str] = []
    for part in set_of_pods["topologyAssignment"]["slices"]:
        (level,) = part["valuesPerLevel"]
        names = level.get("individual", {})
        prefix, suffix = names.get("prefix", ""), names.get("suffix", "")
        hosts = [f"{prefix}{root}{suffix}" for root in names.get("roots", [])]
        hosts = hosts or [level["universal"]] * part["domainCount"]
        counts = part["podCounts"]
        each = counts.get("individual") or [counts["universal"]] * part["domainCount"]
        nodes += [host for host, count in zip(hosts, each, strict=True) for _ in range(count)]
    return nodes


def test_gang_goes_to_the_nodes_of_its_assignment(submit: Submit, queue: Queue) -> None:
    queue.create(pods=4)
    body = queue.training_job("close", UNTIL_TOLD, replicas=3)
    template = body["spec"]["roles"][0]["template"]
    template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": HOST}}
    handle = submit(body)
    handle.wait_started(0, 3)
    workload = wait_condition(handle, "PodsReady", "True")
    assert len(set(nodes_of(handle))) == 1
    assert nodes_of(handle) == assigned(workload)
    handle.tell()
    handle.wait_phase("Succeeded")


def test_pods_of_a_topology_are_counted_once(kube: Kube, submit: Submit, queue: Queue) -> None:
    """Kueue counts pods that it takes for others against a node, besides the assignments."""
    queue.create(pods=1000)
    cpu = min(float(node["status"]["allocatable"]["cpu"]) for node in kube.list("nodes"))
    more_than_half = {"cpu": f"{int(cpu * 550)}m", "memory": "32Mi"}
    wide = submit(queue.training_job("wide", UNTIL_TOLD, requests=more_than_half))
    wide.wait_started(0, 2)
    assert nodes_of(wide) == assigned(wait_condition(wide, "PodsReady", "True"))
    assert sorted(nodes_of(wide)) == ["node-1", "node-2"]
    small = submit(queue.training_job("small", UNTIL_TOLD))
    small.wait_started(0, 2)
    for handle in (small, wide):
        handle.tell()
        handle.wait_phase("Succeeded")
