# SPDX-License-Identifier: Apache-2.0
"""Jobs of a flavor with a topology: Kueue says which node each pod goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import kwok
import pytest
from controller import Kueue
from jobs import UNTIL_TOLD, JobHandle
from kube import Kube, Object
from queues import POOL, Queue, make_flavor, make_topology, wait_condition

HOST = "kubernetes.io/hostname"
RACK = "tests.paceline.dev/rack"
BLOCK = "tests.paceline.dev/block"
# Block and rack of each node. If no level is asked for, Kueue takes the first nodes by name. Those
# lie in two racks and two blocks.
NETWORK = {
    "net-1": ("b1", "r1"),
    "net-2": ("b2", "r2"),
    "net-3": ("b2", "r2"),
    "net-4": ("b2", "r3"),
}

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


@pytest.fixture(scope="module")
def network(kube: Kube, kueue: Kueue, kwok_controller: None) -> Iterator[str]:
    """A flavor of nodes in racks and blocks. Each node has room for one of the tests' pods."""
    topology = make_topology(kube, "network", BLOCK, RACK, HOST)
    room = {"cpu": "2", "memory": "1Gi", "pods": "10"}
    for node, (block, rack) in NETWORK.items():
        kwok.add_node(kube, node, {POOL: "network", BLOCK: block, RACK: rack}, room)
    yield make_flavor(kube, "network", nodeLabels={POOL: "network"}, topologyName=topology)
    for node in NETWORK:
        kube.delete("nodes", "", node)


@pytest.mark.parametrize(
    ("level", "label", "nodes", "where"),
    [
        ("Leaf", RACK, ["net-2", "net-3"], "2 nodes in leaf r2, spine b2"),
        ("Spine", BLOCK, ["net-2", "net-3", "net-4"], "3 nodes in 2 leaves, spine b2"),
    ],
)
def test_gang_lies_in_the_domain_that_both_ask_for(
    kube: Kube,
    submit: Submit,
    namespace: str,
    network: str,
    level: str,
    label: str,
    nodes: list[str],
    where: str,
) -> None:
    """The annotation asks Kueue, `topology.required` asks Paceline, which reads the same labels."""
    queue = Queue(kube, namespace, network)
    queue.create(pods=1000)
    requests = {"cpu": "1100m", "memory": "32Mi"}
    body = queue.training_job(
        "near", UNTIL_TOLD, replicas=len(nodes), requests=requests, topology={"required": level}
    )
    template = body["spec"]["roles"][0]["template"]
    template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": label}}
    handle = submit(body)
    handle.wait_phase("Running")
    workload = wait_condition(handle, "PodsReady", "True")
    assert nodes_of(handle) == assigned(workload) == nodes
    assert handle.status["placement"]["where"] == where
    handle.delete()
    queue.delete()
