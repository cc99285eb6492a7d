# SPDX-License-Identifier: Apache-2.0
"""What goes away around a job: the API server, a node."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object
from testbed import Cluster, Operator

Submit = Callable[[Object], JobHandle]
OUTAGE_SECONDS = 30


def test_node_cut_off(kube: Kube, cluster: Cluster, submit: Submit, namespace: str) -> None:
    """A node loses its network: after forceDeleteAfter its pod is force-deleted and replaced on
    another node.
    """
    policy = {"gracePeriod": "2s", "forceDeleteAfter": "5s", "maxRestarts": 0}
    handle = submit(job("island", UNTIL_TOLD, replicas=2, failurePolicy=policy))
    handle.wait_started(0, 2)
    handle.wait_phase("Running")
    placed = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in handle.pods()}
    lost = placed["island-worker-1-0"]
    cluster.call("cut", lost)
    try:
        began = time.monotonic()
        kube.wait(
            "every pod is on the node that is left",
            lambda: _nodes(handle) and lost not in _nodes(handle) and len(_nodes(handle)) == 2,
            namespace,
        )
        print(f"replaced {time.monotonic() - began:.1f} s after the cut")
        handle.wait_phase("Running")
        handle.tell()
        status = handle.wait_phase("Succeeded")
    finally:
        cluster.call("restore", lost)
    assert status["restarts"] == 0, "a lost node spent the budget"
    kube.wait("the node is back", lambda: _ready(kube, lost))


def test_spare_stands_in(kube: Kube, cluster: Cluster, submit: Submit, namespace: str) -> None:
    """A pod freezes, as on a node that hangs: the spare takes its place, whatever Kubernetes knows.
    The pod stands by when it is back, and takes its own place again when the spare is deleted.
    """
    policy = {"gracePeriod": "2s", "maxRestarts": 0, "spares": 1}
    handle = submit(job("spared", UNTIL_TOLD, replicas=2, failurePolicy=policy))
    handle.wait_started(0, 2)
    handle.wait_phase("Running")
    kube.wait("the spare stands by", lambda: handle.status["ready"] == "3/3", namespace)
    assert handle.status["roles"][0]["replicas"] == 3
    # A spare has the place from the start if it came much sooner.
    frozen, spare = sorted(
        handle.pods()[1:],
        key=lambda pod: "[1] rank 1" not in kube.logs(namespace, pod["metadata"]["name"]),
    )
    container = frozen["status"]["containerStatuses"][0]["containerID"].removeprefix(
        "containerd://"
    )
    task = ["ctr", "-n", "k8s.io", "tasks"]
    cluster.on_node(frozen["spec"]["nodeName"], *task, "pause", container)
    try:
        began = time.monotonic()
        handle.wait_started(1, 2)
        print(f"both ranks ran again {time.monotonic() - began:.1f} s after the freeze")
        log = kube.logs(namespace, spare["metadata"]["name"])
        assert "[1] rank 1" in log, log
    finally:
        cluster.on_node(frozen["spec"]["nodeName"], *task, "resume", container)
    kube.wait(
        "the pod that was frozen stands by",
        lambda: (
            f"{frozen['metadata']['name']} stands by" in kube.logs(namespace, handle.pod_names()[0])
        ),
        namespace,
    )
    kube.delete("pods", namespace, spare["metadata"]["name"])
    handle.wait_started(2, 2)
    kube.wait(
        "the next spare stands by",
        lambda: handle.status["ready"] == "3/3" and handle.status.get("disruptions") == 1,
        namespace,
    )
    handle.wait_phase("Running")
    assert frozen["metadata"]["uid"] in handle.pod_uids()
    assert handle.status["restarts"] == 0, handle.status
    # The third, which stands by, ends with the job.
    for name in (handle.pod_names()[0], frozen["metadata"]["name"]):
        kube.execute(namespace, name, ": >/tmp/go")
    handle.wait_phase("Succeeded")


def test_api_server_stopped(
    kube: Kube, cluster: Cluster, operator: Operator, submit: Submit, namespace: str
) -> None:
    """For 30 s there is no API server. The ranks go on, and a rank that is killed meanwhile comes
    back without it. The operator gives up its lease, ends, is started again as a Deployment would,
    and waits.
    """
    handle = submit(job("outage", UNTIL_TOLD, replicas=2))
    handle.wait_started(0, 2)
    handle.wait_phase("Running")
    pods = handle.pods()
    container = pods[1]["status"]["containerStatuses"][0]["containerID"].removeprefix(
        "containerd://"
    )
    node = pods[1]["spec"]["nodeName"]
    cluster.call("stop-apiserver")
    began = time.monotonic()
    try:
        kube.close()
        kill = ["ctr", "-n", "k8s.io", "tasks", "exec", "--exec-id", "kill", container]
        cluster.on_node(node, *kill, "/bin/sh", "-c", "kill -9 $(cat /tmp/pid.0)")
        ends = 0
        while time.monotonic() - began < OUTAGE_SECONDS:
            if not operator.running():
                ends += 1
                assert ends == 1 and "leadership is lost" in operator.tail(), operator.tail()
                operator.start()
            time.sleep(0.5)
    finally:
        cluster.call("start-apiserver")
    handle.wait_started(1, 2)
    assert handle.pod_uids() == [pod["metadata"]["uid"] for pod in pods]
    kube.wait(
        "the operator knows of the restart", lambda: handle.status.get("restarts") == 1, namespace
    )
    handle.tell()
    handle.wait_phase("Succeeded")
    after = submit(job("after", "exit 0"))
    after.wait_phase("Succeeded")


def _nodes(handle: JobHandle) -> list[str]:
    pods = [pod for pod in handle.pods() if "deletionTimestamp" not in pod["metadata"]]
    return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]


def _ready(kube: Kube, node: str) -> bool:
    conditions = kube.get("nodes", "", node)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
