# SPDX-License-Identifier: Apache-2.0
"""Installed by the chart: operator, agents and priority classes, with the privileges that they ship with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jobs import JobHandle, job
from kube import Kube
from testbed import ROOT, Operator, run

SYSTEM = "paceline-system"


@pytest.fixture(scope="module")
def installed(kube: Kube, operator: Operator) -> Iterator[None]:
    operator.stop()
    helm = ["helm", "--kubeconfig", str(kube.kubeconfig), "--namespace", SYSTEM]
    chart = str(ROOT / "helm" / "paceline")
    try:
        run([*helm, "install", "paceline", chart, "--create-namespace", "--wait", "--timeout", "120s"], 150)
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kube.describe(SYSTEM)}\n{kube.describe('paceline-agents')}") from None
    finally:
        run([*helm, "uninstall", "paceline", "--wait", "--ignore-not-found"], 90)
        kube.delete("namespaces", "", SYSTEM)


def test_chart_runs_a_job(kube: Kube, installed: None, namespace: str) -> None:
    spec = {"scheduling": {"priorityClassName": "paceline-normal"}}
    kube.create("trainingjobs", namespace, job("installed", "echo well", replicas=2, processes=2, **spec))
    handle = JobHandle(kube, namespace, "installed")
    handle.wait_phase("Succeeded")
    pods = handle.pods()
    assert [pod["spec"]["priorityClassName"] for pod in pods] == ["paceline-normal"] * 2
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

    kube.wait("every node has its NodeFabric", published, "paceline-agents")
    for pod in kube.list("pods", "paceline-agents"):
        # The privileged container has ended, well, before the agent started.
        (look,) = pod["status"]["initContainerStatuses"]
        assert look["state"]["terminated"]["exitCode"] == 0, look
        log = kube.logs("paceline-agents", pod["metadata"]["name"], "agent")
        assert "looked at with privilege: PCI configuration of " in log, log
        assert ", registrations of " in log, log
    for fabric in kube.list("nodefabrics"):
        node = nodes[fabric["metadata"]["name"]]
        assert fabric["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        assert fabric["status"]["cpu"]["threads"] >= 1
