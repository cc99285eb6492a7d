# SPDX-License-Identifier: Apache-2.0
"""A job waits for nodes that do not exist yet. An autoscaler adds KWOK's nodes for its
placeholders, and takes them away when the job has ended.

The job is in no queue of Kueue: for those, Kueue asks by its own admission checks.
"""

from __future__ import annotations

from collections.abc import Callable

from autoscaler import POOL, KwokAutoscaler, acting, placeholder_class
from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object
from test_growth import check_order, placeholders


def end_well(kube: Kube, pod: Object) -> None:
    """Says what a kubelet says when the rank has ended; KWOK's pods run until they are deleted."""
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:01Z"}
    container = {**pod["status"]["containerStatuses"][0], "ready": False}
    container["state"] = {"terminated": ended}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    metadata = pod["metadata"]
    kube.patch("pods", metadata["namespace"], metadata["name"], {"status": status}, "status")


def test_nodes_come_for_placeholders_and_go_after_the_job(
    kube: Kube, kwok_controller: None, submit: Callable[[Object], JobHandle], namespace: str
) -> None:
    since = kube.listing("pods", namespace)["metadata"]["resourceVersion"]
    room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    scheduling = {"provision": "Placeholders"}
    body = job("grows", UNTIL_TOLD, requests={"cpu": "5"}, scheduling=scheduling)
    body["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {POOL: "growing"}
    played = KwokAutoscaler(kube.again(), namespace, "growing", room)
    with placeholder_class(kube), acting(played) as autoscaler:
        handle = submit(body)
        handle.wait_phase("Running")
        kube.wait("the placeholders are gone", lambda: not placeholders(kube, namespace), namespace)
        assert len(autoscaler.asked) == 2
        assert set(autoscaler.asked.values()) <= {"grows-placeholder-0", "grows-placeholder-1"}
        assert {pod["spec"]["nodeName"] for pod in handle.pods()} == set(autoscaler.asked)
        check_order(kube.history("pods", namespace, since))
        for pod in handle.pods():
            end_well(kube, pod)
        handle.wait_phase("Succeeded")
        kube.wait(
            "the autoscaler has taken the nodes away",
            lambda: not any(kube.find("nodes", "", node) for node in autoscaler.asked),
            namespace,
        )
        assert handle.phase == "Succeeded"
