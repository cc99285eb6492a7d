# SPDX-License-Identifier: Apache-2.0
"""Installed by the chart: operator, agents and priority classes, with the privileges that they ship with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jobs import JobHandle, job, trainer
from kube import Kube, Object
from testbed import ROOT, Cluster, Operator, run

SYSTEM = "paceline-system"
AGENTS = "paceline-agents"
# The nodes share the machine's root; the kubelet's folder is each one's own.
STATE = "/var/lib/kubelet/paceline"


@pytest.fixture(scope="module")
def installed(kube: Kube, operator: Operator) -> Iterator[None]:
    operator.stop()
    helm = ["helm", "--kubeconfig", str(kube.kubeconfig), "--namespace", SYSTEM]
    chart = str(ROOT / "helm" / "paceline")
    plugin = ["--set=agent.devicePlugin.enabled=true", f"--set=agent.devicePlugin.stateDir={STATE}"]
    try:
        run([*helm, "install", "paceline", chart, "--create-namespace", "--wait", "--timeout", "120s", *plugin], 150)
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kube.describe(SYSTEM)}\n{kube.describe(AGENTS)}") from None
    finally:
        run([*helm, "uninstall", "paceline", "--wait", "--ignore-not-found"], 90)
        kube.delete("namespaces", "", SYSTEM)


def test_chart_runs_a_job(kube: Kube, installed: None, namespace: str) -> None:
    spec = {"scheduling": {"priorityClassName": "paceline-normal"}}
    for node in kube.list("nodes"):
        name = node["metadata"]["name"]
        kube.wait("the node offers slots", lambda name=name: allocatable(kube, name) == "128", AGENTS)
    kube.create("trainingjobs", namespace, job("installed", "echo well", replicas=2, processes=2, **spec))
    handle = JobHandle(kube, namespace, "installed")
    handle.wait_phase("Succeeded")
    # By then every node offered slots, so nothing was copied.
    assert kube.get("trainingjobs", namespace, "installed")["status"]["placement"]["runtime"] == "Slot"
    pods = handle.pods()
    assert [pod["spec"]["priorityClassName"] for pod in pods] == ["paceline-normal"] * 2
    assert all("initContainers" not in pod["spec"] for pod in pods)
    assert all("well" in kube.logs(namespace, pod["metadata"]["name"]) for pod in pods)


def test_preempting_priority_class_is_refused(kube: Kube, installed: None, namespace: str) -> None:
    scheduling = {"priorityClassName": "system-cluster-critical"}
    kube.create("trainingjobs", namespace, job("pushy", scheduling=scheduling))
    handle = JobHandle(kube, namespace, "pushy")

    def told() -> bool:
        return "preemptionPolicy" in handle.condition("Placed")["message"]

    kube.wait("the condition tells of preemptionPolicy", told, namespace)
    assert handle.pods() == []


def test_agents_publish_every_node(kube: Kube, installed: None) -> None:
    nodes = {node["metadata"]["name"]: node for node in kube.list("nodes")}

    def published() -> bool:
        fabrics = {fabric["metadata"]["name"]: fabric for fabric in kube.list("nodefabrics")}
        return set(fabrics) == set(nodes) and all(fabric.get("status", {}).get("cpu") for fabric in fabrics.values())

    kube.wait("every node has its NodeFabric", published, AGENTS)
    for pod in kube.list("pods", AGENTS):
        # The privileged container and the one that brings the runtime have ended, well, before the agent started.
        first = {status["name"]: status["state"] for status in pod["status"]["initContainerStatuses"]}
        assert {name: state["terminated"]["exitCode"] for name, state in first.items()} == {"look": 0, "runtime": 0}
        log = kube.logs(AGENTS, pod["metadata"]["name"], "agent")
        assert "looked at with privilege: PCI configuration of " in log, log
        assert ", registrations of " in log, log
    for fabric in kube.list("nodefabrics"):
        node = nodes[fabric["metadata"]["name"]]
        assert fabric["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        assert fabric["status"]["cpu"]["threads"] >= 1


WITH_SLOT = """
/opt/paceline/bin/paceline-launcher version
ls /opt/paceline
touch /opt/paceline/mine /run/paceline-slot/mine && echo writable
echo "slot at $PACELINE_SLOT_DIR"
until [ -e /tmp/go ]; do sleep 0.1; done
/opt/paceline/bin/paceline-launcher version && echo "still there"
"""


def pod_with_slot(name: str, node: str) -> Object:
    container = trainer(WITH_SLOT, limits={"paceline.dev/runtime": "1"})
    spec = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def allocatable(kube: Kube, node: str) -> str:
    return kube.get("nodes", "", node)["status"]["allocatable"].get("paceline.dev/runtime", "0")


def registrations(kube: Kube, node: str) -> int:
    """How often the agent that runs on a node now has told the kubelet of its slots."""
    running = [
        pod["metadata"]["name"]
        for pod in kube.list("pods", AGENTS)
        if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
    ]
    return sum(kube.logs(AGENTS, name, "agent").count("the kubelet knows of") for name in running)


def test_a_slot_outlives_the_kubelet_and_the_agent(
    kube: Kube, cluster: Cluster, installed: None, namespace: str
) -> None:
    node = kube.list("nodes")[0]["metadata"]["name"]
    kube.wait("the node offers slots", lambda: allocatable(kube, node) == "128", AGENTS)

    def ready() -> bool:
        conditions = (kube.find("nodefabrics", "", node) or {}).get("status", {}).get("conditions", [])
        return any(each["type"] == "RuntimeReady" and each["status"] == "True" for each in conditions)

    def said(pod: str, words: str) -> bool:
        return words in kube.logs(namespace, pod)

    kube.wait("the node is RuntimeReady", ready, AGENTS)
    kube.create("pods", namespace, pod_with_slot("first", node))
    kube.wait("the first pod has its slot", lambda: said("first", "slot at /run/paceline-slot"), namespace)
    log = kube.logs(namespace, "first")
    assert "bin\nlib\npython" in log, log
    assert "writable" not in log, log
    # Nothing was copied: the same file as on the node.
    staged = cluster.on_node(node, "sh", "-c", f"stat -c %i {STATE}/runtimes/*/bin/paceline-launcher").split()
    seen = kube.execute(namespace, "first", "stat -c %i /opt/paceline/bin/paceline-launcher").split()
    assert seen == staged

    before = registrations(kube, node)
    cluster.call("restart-kubelet", node)
    kube.wait("the agent tells the new kubelet", lambda: registrations(kube, node) > before, AGENTS)
    kube.wait("the node offers slots again", lambda: allocatable(kube, node) == "128", AGENTS)
    kube.create("pods", namespace, pod_with_slot("second", node))
    kube.wait("the second pod has its slot", lambda: said("second", "slot at"), namespace)

    (agent,) = [pod for pod in kube.list("pods", AGENTS) if pod["spec"].get("nodeName") == node]
    kube.delete("pods", AGENTS, agent["metadata"]["name"], gracePeriodSeconds="0")
    kube.wait("another agent tells the kubelet", lambda: registrations(kube, node) > 0, AGENTS)
    kube.create("pods", namespace, pod_with_slot("third", node))
    kube.wait("the third pod has its slot", lambda: said("third", "slot at"), namespace)
    for name in ("first", "second", "third"):
        kube.execute(namespace, name, "touch /tmp/go")
        kube.wait(f"{name} still has its runtime", lambda name=name: said(name, "still there"), namespace)
        kube.delete("pods", namespace, name, gracePeriodSeconds="0")
