# SPDX-License-Identifier: Apache-2.0
"""An elastic job: kubectl scale and a HorizontalPodAutoscaler change the number of its workers
while it runs, and a lost place makes it go on with fewer.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from jobs import UNTIL_TOLD, JobHandle, job, role, trainer
from kube import Kube, Object

Submit = Callable[[Object], JobHandle]
TELLS = 'echo "rank $RANK of $WORLD_SIZE"' + UNTIL_TOLD


def elastic(name: str, replicas: int, **bounds: int) -> Object:
    body = job(name, TELLS)
    del body["spec"]["roles"][0]["replicas"]
    fields = {"minReplicas": 1, "maxReplicas": 4, **bounds}
    body["spec"]["elastic"] = {"role": "worker", "replicas": replicas, **fields}
    return body


def world_sizes(handle: JobHandle) -> set[str]:
    """What the ranks of the present pods were told."""
    return {
        line.rsplit(" ", 1)[1]
        for name in handle.pod_names()
        for line in handle.kube.logs(handle.namespace, name).splitlines()
        if " of " in line and "rank " in line and line.rsplit(" ", 1)[1].isdigit()
    }


def test_kubectl_scale_changes_the_world_size(kube: Kube, submit: Submit, namespace: str) -> None:
    handle = submit(elastic("scales", 2))
    handle.wait_started(0, 2)
    handle.wait_phase("Running")
    for attempt, replicas in ((1, 4), (2, 1)):
        kube.kubectl("scale", "trainingjob/scales", f"--replicas={replicas}", "-n", namespace)
        handle.wait_started(attempt, replicas)
        handle.wait_phase("Running")
        assert world_sizes(handle) == {str(replicas)}
        assert len(handle.pods()) == replicas
        scale = kube.request("GET", kube.path("trainingjobs", namespace, "scales", "scale"))
        assert scale["status"]["replicas"] == replicas, scale
        assert scale["status"]["selector"].endswith("paceline.dev/role=worker"), scale
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (2, 0, 0)


def test_a_horizontal_pod_autoscaler_scales_it(kube: Kube, submit: Submit, namespace: str) -> None:
    """By Kubernetes' own controller. It brings the number within its bounds before it reads any
    metric, and no metric is served here.
    """
    body = elastic("follows", 1)
    body["spec"]["roles"].append(role("other", 1, trainer(TELLS)))
    handle = submit(body)
    handle.wait_started(0, 2)
    handle.wait_phase("Running")

    def bound(lowest: int, highest: int) -> None:
        bounds = {"spec": {"minReplicas": lowest, "maxReplicas": highest}}
        kube.patch("horizontalpodautoscalers", namespace, "follows", bounds)

    def wait_told(kind: str, status: str, reason: str) -> str:
        """Answers the message of the autoscaler's condition."""

        def told() -> Object | None:
            scaler = kube.get("horizontalpodautoscalers", namespace, "follows")
            for condition in scaler.get("status", {}).get("conditions", []):
                if (condition["type"], condition["status"]) == (kind, status):
                    return condition if condition["reason"] == reason else None
            return None

        what = f"the autoscaler has {kind}={status} {reason}"
        condition = kube.wait(what, told, namespace, timeout=60)
        assert condition
        return str(condition["message"])

    kube.kubectl("autoscale", "trainingjob/follows", "--min=2", "--max=4", "-n", namespace)
    handle.wait_started(1, 3)
    handle.wait_phase("Running")
    # Its look at metrics comes after its look at the selector.
    wait_told("ScalingActive", "False", "FailedGetResourceMetric")
    wait_told("AbleToScale", "True", "SucceededGetScale")
    shown = kube.kubectl(
        "get", "trainingjob/follows", "--subresource=scale", "-n", namespace, "-o", "json"
    )
    scale = json.loads(shown)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2), scale
    selected = kube.list("pods", namespace, labelSelector=scale["status"]["selector"])
    names = {pod["metadata"]["name"] for pod in selected}
    assert names == {name for name in handle.pod_names() if name.startswith("follows-worker-")}
    assert len(names) == 2 and all(pod["status"]["phase"] == "Running" for pod in selected)

    bound(1, 1)
    handle.wait_started(2, 2)
    handle.wait_phase("Running")
    bound(5, 6)  # the job's own bounds are 1 and 4
    refusal = wait_told("AbleToScale", "False", "FailedUpdateScale")
    assert "replicas must be from minReplicas to maxReplicas" in refusal, refusal
    assert handle.read()["spec"]["elastic"]["replicas"] == 1
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (2, 0, 0)


def test_a_node_without_a_spare_makes_it_smaller(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    """Each pod has a node of its own, so one that is lost with its node's place has none."""
    body = elastic("shrinks", 2)
    body["spec"]["scheduling"] = {"podsPerNode": 1}
    handle = submit(body)
    handle.wait_started(0, 2)
    handle.wait_phase("Running")
    lost = handle.pods()[1]
    node = lost["spec"]["nodeName"]
    kube.kubectl("cordon", node)
    try:
        kube.delete("pods", namespace, lost["metadata"]["name"])
        kube.wait("one rank runs", lambda: world_sizes(handle) == {"1"}, namespace)
        status = handle.wait_phase("Running")
        assert status["elastic"]["replicas"] == 1, status
        assert "1 of 2 replicas" in status["elastic"]["message"], status
    finally:
        kube.kubectl("uncordon", node)
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert (status["restarts"], status["disruptions"]) == (0, 1)
