# SPDX-License-Identifier: Apache-2.0
"""An elastic job: kubectl scale changes the number of its workers while it runs, and a lost place
makes it go on with fewer.
"""

from __future__ import annotations

from collections.abc import Callable

from jobs import UNTIL_TOLD, JobHandle, job
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
