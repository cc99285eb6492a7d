# SPDX-License-Identifier: Apache-2.0
"""Jobs of a flavor with a topology: Kueue says which node each pod goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import kwok
import pytest
from controller import Kueue
from jobs import UNTIL_TOLD, JobHandle, role, trainer
from kube import Kube, Object
from queues import POOL, Queue, make_flavor, make_topology, wait_condition, wait_workload

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


@pytest.fixture
def near(kube: Kube, namespace: str, network: str) -> Iterator[Queue]:
    """A queue of that flavor. When its test ends, the nodes are free for the next one."""
    queue = Queue(kube, namespace, network)
    yield queue
    for item in kube.list("trainingjobs", namespace):
        JobHandle(kube, namespace, item["metadata"]["name"]).delete()
    kube.wait(
        "no Workload and no pod is left",
        lambda: not kube.list("workloads", namespace) and not kube.list("pods", namespace),
        namespace,
    )
    queue.delete()


ONE_NODE_EACH = {"cpu": "1100m", "memory": "32Mi"}


def requests_of(workload: Object) -> list[Object]:
    """By pod set, what it asks of the topology."""
    sets = [pod_set.get("topologyRequest", {}) for pod_set in workload["spec"]["podSets"]]
    keys = ("required", "preferred", "podSetGroupName")
    return [{key: asked[key] for key in keys if key in asked} for asked in sets]


@pytest.mark.parametrize("by_annotation", [True, False])
@pytest.mark.parametrize(
    ("level", "label", "nodes", "where"),
    [
        ("Leaf", RACK, ["net-2", "net-3"], "2 nodes in leaf r2, spine b2"),
        ("Spine", BLOCK, ["net-2", "net-3", "net-4"], "3 nodes in 2 leaves, spine b2"),
    ],
)
def test_gang_lies_in_the_domain_that_it_requires(
    submit: Submit,
    near: Queue,
    by_annotation: bool,
    level: str,
    label: str,
    nodes: list[str],
    where: str,
) -> None:
    """Paceline reads the same labels. It asks Kueue if the template does not."""
    near.create(pods=1000)
    near.wait_flavors()
    body = near.training_job(
        "near",
        UNTIL_TOLD,
        replicas=len(nodes),
        requests=ONE_NODE_EACH,
        topology={"required": level},
    )
    if by_annotation:
        template = body["spec"]["roles"][0]["template"]
        template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": label}}
    handle = submit(body)
    handle.wait_phase("Running")
    workload = wait_condition(handle, "PodsReady", "True")
    assert requests_of(workload) == [{"required": label}]
    assert nodes_of(handle) == assigned(workload) == nodes
    assert handle.status["placement"]["where"] == where


def test_preferred_level_reaches_kueue(submit: Submit, near: Queue) -> None:
    near.create(pods=1000)
    near.wait_flavors()
    handle = submit(
        near.training_job(
            "near", UNTIL_TOLD, requests=ONE_NODE_EACH, topology={"preferred": "Leaf"}
        )
    )
    handle.wait_phase("Running")
    workload = wait_condition(handle, "PodsReady", "True")
    assert requests_of(workload) == [{"preferred": RACK}]
    assert nodes_of(handle) == assigned(workload) == ["net-2", "net-3"]


def test_two_roles_lie_in_one_rack(submit: Submit, near: Queue) -> None:
    """Alone, either of them would go to a rack of one node, which it fits best."""
    near.create(pods=1000)
    near.wait_flavors()
    body = near.training_job("near", UNTIL_TOLD, topology={"required": "Leaf"})
    container = trainer(UNTIL_TOLD, ONE_NODE_EACH)
    body["spec"]["roles"] = [role(name, 1, container) for name in ("chief", "worker")]
    handle = submit(body)
    handle.wait_phase("Running")
    asked = {"required": RACK, "podSetGroupName": "together"}
    assert requests_of(wait_condition(handle, "PodsReady", "True")) == [asked, asked]
    assert sorted(nodes_of(handle)) == ["net-2", "net-3"]


def test_level_that_not_all_flavors_name_is_pacelines_alone(
    kube: Kube, submit: Submit, near: Queue
) -> None:
    """Kueue admits a job that asks only to flavors with a topology, and others only to the rest."""
    plain = make_flavor(kube, "no-topology", nodeLabels={POOL: "network"})
    near.create(pods=1000, more=[plain])
    near.wait_flavors()
    handle = submit(
        near.training_job("near", UNTIL_TOLD, requests=ONE_NODE_EACH, topology={"required": "Leaf"})
    )
    handle.wait_phase("Running")
    workload = wait_condition(handle, "PodsReady", "True")
    assert requests_of(workload) == [{}]
    (admitted,) = workload["status"]["admission"]["podSetAssignments"]
    assert set(admitted["flavors"].values()) == {plain}
    assert handle.status["placement"]["where"] == "2 nodes in leaf r2, spine b2"


def test_waiting_workload_learns_the_level(kube: Kube, submit: Submit, near: Queue) -> None:
    """It waits for quota, and keeps its age."""
    near.create(pods=0)
    near.wait_flavors()
    handle = submit(near.training_job("near", UNTIL_TOLD, requests=ONE_NODE_EACH))
    before = wait_workload(handle, "asks for nothing", lambda found: requests_of(found) == [{}])
    change = {"spec": {"topology": {"preferred": "Leaf"}}}
    kube.patch("trainingjobs", handle.namespace, handle.name, change)
    after = wait_workload(
        handle, "asks for the rack", lambda found: requests_of(found) == [{"preferred": RACK}]
    )
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
