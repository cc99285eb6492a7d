# SPDX-License-Identifier: Apache-2.0
"""Installed by the chart: operator, agents and priority classes, with the privileges that they ship
with.
"""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise

import pytest
from jobs import LAUNCHER_PORT, JobHandle, job, trainer
from kube import Kube, Object
from testbed import ROOT, Cluster, Operator, run

PYTORCH_IMAGE = "paceline/pytorch:dev"
SYSTEM = "paceline-system"
AGENTS = "paceline-agents"
STATE = "/var/lib/paceline"  # as the chart has it; each node of the cluster has its own


@pytest.fixture(scope="module")
def installed(kube: Kube, operator: Operator) -> Iterator[None]:
    operator.stop()
    helm = ["helm", "--kubeconfig", str(kube.kubeconfig), "--namespace", SYSTEM]
    chart = str(ROOT / "helm" / "paceline")
    options = ["--create-namespace", "--wait", "--timeout=120s"]
    plugin = "--set=agent.devicePlugin.enabled=true"
    try:
        run([*helm, "install", "paceline", chart, *options, plugin], 150)
        yield
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kube.describe(SYSTEM)}\n{kube.describe(AGENTS)}") from None
    finally:
        run([*helm, "uninstall", "paceline", "--wait", "--ignore-not-found"], 90)
        kube.delete("namespaces", "", SYSTEM)


def test_chart_runs_a_job(kube: Kube, installed: None, namespace: str) -> None:
    spec = {"scheduling": {"priorityClassName": "paceline-normal"}}
    wait_for_slots(kube)
    kube.create(
        "trainingjobs", namespace, job("installed", "echo well", replicas=2, processes=2, **spec)
    )
    handle = JobHandle(kube, namespace, "installed")
    handle.wait_phase("Succeeded")
    # By then every node offered slots, so nothing was copied.
    assert (
        kube.get("trainingjobs", namespace, "installed")["status"]["placement"]["runtime"] == "Slot"
    )
    pods = handle.pods()
    assert [pod["spec"]["priorityClassName"] for pod in pods] == ["paceline-normal"] * 2
    assert all("initContainers" not in pod["spec"] for pod in pods)
    assert all("well" in kube.logs(namespace, pod["metadata"]["name"]) for pod in pods)


MEASURED = """
PYTHONPATH=/opt/paceline/python exec python3 -c '
import os, time
import paceline
made = -1  # the first mark begins a step
while not os.path.exists("/tmp/stop"):
    time.sleep(0.05)
    paceline.step()
    made += 1
    with open("/tmp/new", "w") as file:
        file.write(str(made))
    os.replace("/tmp/new", "/tmp/made")
time.sleep(3600)
'
"""


def agent_metrics(kube: Kube, node: str) -> str:
    """What the node's agent serves; nothing while it has none that listens."""
    for pod in kube.list("pods", AGENTS):
        address = pod["status"].get("podIP")
        if (
            pod["spec"].get("nodeName") != node
            or "deletionTimestamp" in pod["metadata"]
            or not address
        ):
            continue
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=5) as got,
        ):
            return got.read().decode()
    return ""


def counted(text: str, name: str, job: str, namespace: str) -> float:
    """-1 where there is no such series."""
    for line in text.splitlines():
        if line.startswith(f'{name}{{namespace="{namespace}",job="{job}",'):
            return float(line.rpartition(" ")[2])
    return -1


def test_the_agent_serves_the_ranks_of_its_slots_and_the_launcher_does_not(
    kube: Kube, installed: None, namespace: str, pytorch_image: None
) -> None:
    wait_for_slots(kube)
    spec = job("measured", MEASURED, replicas=1)
    spec["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = PYTORCH_IMAGE
    kube.create("trainingjobs", namespace, spec)
    handle = JobHandle(kube, namespace, "measured")
    handle.wait_phase("Running")
    (pod,) = handle.pods()
    node, launcher = pod["spec"]["nodeName"], pod["status"]["podIP"]

    seen: list[float] = []  # every count of steps that an agent told, in order

    def served(least: float) -> bool:
        count = counted(agent_metrics(kube, node), "paceline_steps_total", "measured", namespace)
        seen.extend([count] if count >= 0 else [])
        return count > least

    def made() -> int:
        return int(kube.execute(namespace, pod["metadata"]["name"], "cat /tmp/made"))

    kube.wait("the agent serves the rank's steps", lambda: served(10), AGENTS)
    with urllib.request.urlopen(f"http://{launcher}:{LAUNCHER_PORT}/metrics", timeout=60) as answer:
        own = answer.read().decode()
    assert "paceline_steps_total{" not in own, own
    assert "paceline_job_replicas_gathered{" in own, own

    (agent,) = agents_on(kube, node)
    told = seen[-1]
    kube.delete("pods", AGENTS, agent, gracePeriodSeconds="0")
    kube.wait("another agent starts", lambda: bool({*agents_on(kube, node)} - {agent}), AGENTS)
    # A pod that is deleted so is gone for the API server before its processes are: the first agent
    # may read on until the second one does.
    kube.wait("the new agent goes on", lambda: served(10), AGENTS)
    before = made()
    kube.execute(namespace, pod["metadata"]["name"], "touch /tmp/stop")

    def read() -> tuple[float, float]:
        """What the new agent has counted, and what it knows to be lost."""
        text = agent_metrics(kube, node)
        names = ("paceline_steps_total", "paceline_dropped_records_total")
        steps, lost = (counted(text, name, "measured", namespace) for name in names)
        seen.extend([steps] if steps >= 0 else [])
        return steps, lost

    readings = [read()]

    def all_read() -> bool:
        """The counts stand still, and what is in neither was made before the new agent went on."""
        time.sleep(1)
        readings.append(read())
        return (
            readings[-1] == readings[-2]
            and readings[-1][0] >= 0
            and made() - sum(readings[-1]) <= before
        )

    kube.wait("all steps that the new agent found are counted or told as lost", all_read, AGENTS)
    steps, lost = readings[-1]
    # The first agent's: at least what it told before it died. None is counted twice, none lost in
    # silence.
    first = made() - steps - lost
    assert told <= first <= before, (told, first, before, made(), steps, lost, seen)
    resets = [later for earlier, later in pairwise(seen) if later < earlier]
    assert len(resets) <= 1, seen
    assert handle.pods()[0]["status"]["phase"] == "Running"
    assert handle.pods()[0]["metadata"]["uid"] == pod["metadata"]["uid"]


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
        return set(fabrics) == set(nodes) and all(
            fabric.get("status", {}).get("cpu") for fabric in fabrics.values()
        )

    kube.wait("every node has its NodeFabric", published, AGENTS)
    for pod in kube.list("pods", AGENTS):
        # The privileged container and the one that brings the runtime have ended, well, before the
        # agent started.
        first = {
            status["name"]: status["state"] for status in pod["status"]["initContainerStatuses"]
        }
        assert {name: state["terminated"]["exitCode"] for name, state in first.items()} == {
            "look": 0,
            "runtime": 0,
        }
        log = kube.logs(AGENTS, pod["metadata"]["name"], "agent")
        assert "privileged scan: PCI configuration of " in log, log
        assert ", registrations of " in log, log
    for fabric in kube.list("nodefabrics"):
        node = nodes[fabric["metadata"]["name"]]
        assert fabric["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        assert fabric["status"]["cpu"]["threads"] >= 1


def say_gpu_direct_works(kube: Kube, node: str) -> None:
    """In its agent's name, as nobody else may. The agent itself, whose node has no GPU, does not
    look at what is stored for minutes.
    """
    agent = {
        "Impersonate-User": f"system:serviceaccount:{AGENTS}:paceline-agent",
        "Impersonate-Extra-Authentication.kubernetes.io%2Fnode-Name": node,
    }
    conditions = kube.get("nodefabrics", "", node)["status"]["conditions"]
    since = conditions[0]["lastTransitionTime"]
    works = {
        "type": "GpuDirectReady",
        "status": "True",
        "reason": "Registered",
        "message": "the test says so",
    }
    conditions.append({**works, "lastTransitionTime": since})
    as_agent = Kube(kube.kubeconfig, agent)
    as_agent.patch("nodefabrics", "", node, {"status": {"conditions": conditions}}, "status")


def test_required_gpu_direct_waits_for_the_agents_word_and_leaves_a_node_that_does_not_keep_it(
    kube: Kube, installed: None, namespace: str
) -> None:
    nodes = [node["metadata"]["name"] for node in kube.list("nodes")]

    def ready() -> bool:
        fabrics = [kube.find("nodefabrics", "", name) or {} for name in nodes]
        conditions = [
            each for fabric in fabrics for each in fabric.get("status", {}).get("conditions", [])
        ]
        return [each["status"] for each in conditions if each["type"] == "RuntimeReady"] == [
            "True"
        ] * len(nodes)

    kube.wait("the agents have nothing more to write", ready, AGENTS)
    gpus = {"status": {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}}
    try:
        for name in nodes:
            kube.patch("nodes", "", name, gpus, "status")
        picky = job(
            "picky", replicas=1, limits={"nvidia.com/gpu": "1"}, network={"gpuDirect": "Required"}
        )
        kube.create("trainingjobs", namespace, picky)
        handle = JobHandle(kube, namespace, "picky")
        handle.wait_condition("Placed", "False", "GpuDirectNotReady")
        words = "2 without a living agent's word on GPUDirect"
        kube.wait(
            "it tells of both nodes",
            lambda: words in handle.condition("Placed")["message"],
            namespace,
        )
        assert handle.pods() == []

        for name in nodes:
            say_gpu_direct_works(kube, name)

        def tried() -> bool:
            return len(handle.status.get("excludedNodes", [])) == len(nodes)

        kube.wait("no node keeps what was said of it", tried, namespace)
        excluded = handle.status["excludedNodes"]
        assert {each["name"] for each in excluded} == set(nodes)
        assert all("spec.network.gpuDirect is Required" in each["message"] for each in excluded), (
            excluded
        )
        kube.wait(
            "it says why it waits",
            lambda: "2 where this job failed" in handle.condition("Placed")["message"],
            namespace,
        )
        assert handle.condition("PreflightPassed")["status"] == "False"
        assert handle.status["phase"] == "Queued" and handle.status["restarts"] == 0
    finally:
        kube.delete("trainingjobs", namespace, "picky")
        for name in nodes:
            none = {
                "status": {kind: {"nvidia.com/gpu": None} for kind in ("capacity", "allocatable")}
            }
            kube.patch("nodes", "", name, none, "status")


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
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {"metadata": {"name": name}, "spec": spec}


def allocatable(kube: Kube, node: str) -> str:
    return kube.get("nodes", "", node)["status"]["allocatable"].get("paceline.dev/runtime", "0")


def wait_for_slots(kube: Kube) -> None:
    """Waits until every node offers slots."""
    for node in kube.list("nodes"):
        name = node["metadata"]["name"]
        kube.wait(
            "the node offers slots", lambda name=name: allocatable(kube, name) == "128", AGENTS
        )


def agents_on(kube: Kube, node: str) -> list[str]:
    """The agents of a node that are not being deleted."""
    return [
        pod["metadata"]["name"]
        for pod in kube.list("pods", AGENTS)
        if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
    ]


def registrations(kube: Kube, node: str) -> int:
    """How often the agent that runs on a node now has told the kubelet of its slots."""
    logs = (kube.logs(AGENTS, name, "agent") for name in agents_on(kube, node))
    return sum(log.count("the kubelet knows of") for log in logs)


def run_with_slot(kube: Kube, namespace: str, name: str, node: str) -> None:
    """As a controller does, it replaces a pod that the kubelet refuses: after a registration the
    kubelet has yet to ask for the list of slots.
    """
    kube.create("pods", namespace, pod_with_slot(name, node))

    def has_slot() -> bool:
        status = kube.get("pods", namespace, name)["status"]
        if status.get("reason") == "UnexpectedAdmissionError":
            kube.delete("pods", namespace, name, gracePeriodSeconds="0")
            kube.create("pods", namespace, pod_with_slot(name, node))
            return False
        return status.get("phase") == "Running" and "slot at" in kube.logs(namespace, name)

    kube.wait(f"the {name} pod has its slot", has_slot, namespace)


def test_a_slot_outlives_the_kubelet_and_the_agent(
    kube: Kube, cluster: Cluster, installed: None, namespace: str
) -> None:
    node = kube.list("nodes")[0]["metadata"]["name"]
    kube.wait("the node offers slots", lambda: allocatable(kube, node) == "128", AGENTS)

    def ready() -> bool:
        conditions = (
            (kube.find("nodefabrics", "", node) or {}).get("status", {}).get("conditions", [])
        )
        return any(
            each["type"] == "RuntimeReady" and each["status"] == "True" for each in conditions
        )

    def said(pod: str, words: str) -> bool:
        return words in kube.logs(namespace, pod)

    kube.wait("the node is RuntimeReady", ready, AGENTS)
    kube.create("pods", namespace, pod_with_slot("first", node))
    kube.wait(
        "the first pod has its slot", lambda: said("first", "slot at /run/paceline-slot"), namespace
    )
    log = kube.logs(namespace, "first")
    assert "bin\nlib\npython" in log, log
    assert "writable" not in log, log
    # Nothing was copied: the same file as on the node.
    staged = cluster.on_node(
        node, "sh", "-c", f"stat -c %i {STATE}/runtimes/*/bin/paceline-launcher"
    ).split()
    seen = kube.execute(
        namespace, "first", "stat -c %i /opt/paceline/bin/paceline-launcher"
    ).split()
    assert seen == staged

    before = registrations(kube, node)
    cluster.call("restart-kubelet", node)
    kube.wait("the agent tells the new kubelet", lambda: registrations(kube, node) > before, AGENTS)
    kube.wait("the node offers slots again", lambda: allocatable(kube, node) == "128", AGENTS)
    run_with_slot(kube, namespace, "second", node)

    (agent,) = [pod for pod in kube.list("pods", AGENTS) if pod["spec"].get("nodeName") == node]
    kube.delete("pods", AGENTS, agent["metadata"]["name"], gracePeriodSeconds="0")
    kube.wait("another agent tells the kubelet", lambda: registrations(kube, node) > 0, AGENTS)
    run_with_slot(kube, namespace, "third", node)
    for name in ("first", "second", "third"):
        kube.execute(namespace, name, "touch /tmp/go")
        kube.wait(
            f"{name} still has its runtime", lambda name=name: said(name, "still there"), namespace
        )
        kube.delete("pods", namespace, name, gracePeriodSeconds="0")
