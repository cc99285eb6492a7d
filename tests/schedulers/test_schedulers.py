# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods another scheduler binds: each test runs with each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object
from scheduler import HERE, Scheduler, open_queue

Submit = Callable[[Object], JobHandle]


def big(kube: Kube) -> dict[str, str]:
    """More than half of a node, so that each node takes one pod."""
    free = min(int(node["status"]["allocatable"]["cpu"]) for node in kube.list("nodes"))
    return {"cpu": f"{free * 550}m", "memory": "32Mi"}


def nodes_of(handle: JobHandle) -> list[str]:
    """Of its pods, in node-rank order; "" where none is bound."""
    return [pod["spec"].get("nodeName", "") for pod in handle.pods()]


def at(body: Object, path: tuple[str, ...]) -> Any:
    for key in path:
        body = body[key]
    return body


def group_is_gone(kube: Kube, namespace: str) -> None:
    kube.wait("no PodGroup is left", lambda: not kube.list("podgroups", namespace), namespace)


def test_gang_runs_and_its_group_goes_with_it(
    kube: Kube, submit: Submit, scheduler: Scheduler, namespace: str
) -> None:
    handle = submit(job("digits", UNTIL_TOLD))
    handle.wait_started(0, 2)
    status = handle.wait_phase("Running")
    (group,) = kube.list("podgroups", namespace)
    assert at(group, scheduler.kind.size_path) == 2
    if scheduler.kind.backend == "Volcano":
        assert group["spec"]["minResources"] == {"cpu": "100m", "memory": "67108864"}
    assert status["podGroup"] == group["metadata"]["name"]
    for pod in handle.pods():
        assert pod["spec"]["schedulerName"] == scheduler.kind.name
        assert at(pod, scheduler.kind.group_path) == status["podGroup"]
        assert "affinity" not in pod["spec"], "another scheduler chooses the node"
    handle.wait_condition("Placed", "True", "Bound")
    placed = [
        node["name"] for node in handle.status["placement"]["nodes"] for _ in range(node["pods"])
    ]
    assert placed == nodes_of(handle)
    assert handle.status["startTime"]
    handle.tell()
    handle.wait_phase("Succeeded")
    group_is_gone(kube, namespace)
    kube.wait("the status says so", lambda: "podGroup" not in handle.status, namespace)


def test_gang_without_room_waits_whole_and_starts_when_there_is_some(
    kube: Kube, submit: Submit, scheduler: Scheduler, namespace: str
) -> None:
    """No timeout of Paceline's ends the wait in the other scheduler's queue."""
    first = submit(job("first", UNTIL_TOLD, requests=big(kube), cleanPodPolicy="All"))
    first.wait_started(0, 2)
    body = job("second", UNTIL_TOLD, requests=big(kube), scheduling={"gangTimeout": "2s"})
    second = submit(body)
    waiting = second.wait_condition("Placed", "False", "WaitingForScheduler")
    called = scheduler.kind.called or scheduler.kind.backend
    assert waiting["message"].startswith(f"waits for {called}"), waiting
    assert second.phase == "Queued" and "startTime" not in second.status
    before = second.pod_uids()
    assert len(before) == 2 and nodes_of(second) == ["", ""]
    kube.wait(
        "the job says what the scheduler says of it",
        lambda: (
            "nschedulable" in second.condition("Placed")["message"]
            or "Insufficient" in second.condition("Placed")["message"]
        ),
        namespace,
    )
    first.tell()
    first.wait_phase("Succeeded")
    second.wait_started(0, 2)
    assert second.pod_uids() == before, "the gang waited with the same pods"
    second.tell()
    second.wait_phase("Succeeded")


def test_lost_pod_is_bound_again_and_the_job_goes_on(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    handle = submit(job("digits", UNTIL_TOLD))
    handle.wait_started(0, 2)
    handle.wait_condition("Placed", "True", "Bound")
    kube.delete("pods", namespace, handle.pod_names()[1])
    handle.wait_started(1, 2)
    status = handle.wait_phase("Running")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (1, 0, 1)
    handle.tell()
    handle.wait_phase("Succeeded")


def test_suspended_job_gives_its_group_back(kube: Kube, submit: Submit, namespace: str) -> None:
    handle = submit(job("digits", UNTIL_TOLD))
    handle.wait_started(0, 2)
    kube.patch("trainingjobs", namespace, "digits", {"spec": {"suspend": True}})
    handle.wait_phase("Suspended")
    kube.wait("its pods are gone", lambda: not handle.pods(), namespace)
    group_is_gone(kube, namespace)
    kube.patch("trainingjobs", namespace, "digits", {"spec": {"suspend": False}})
    handle.wait_started(None, 2)
    handle.tell()
    handle.wait_phase("Succeeded")
    group_is_gone(kube, namespace)


def test_paceline_counts_what_the_other_scheduler_has_bound(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    theirs = submit(job("theirs", UNTIL_TOLD, requests=big(kube), cleanPodPolicy="All"))
    theirs.wait_started(0, 2)
    body = job("ours", UNTIL_TOLD, requests=big(kube), scheduling={"backend": "Native"})
    ours = submit(body)
    ours.wait_condition("Placed", "False", "WaitingForRoom")
    assert ours.pods() == []
    theirs.tell()
    theirs.wait_phase("Succeeded")
    ours.wait_started(0, 2)
    ours.tell()
    ours.wait_phase("Succeeded")


@pytest.mark.parametrize("scheduler", [n for n in HERE if n == "volcano"], indirect=True)
def test_queue_of_volcano_bounds_its_jobs(
    kube: Kube, submit: Submit, scheduler: Scheduler, namespace: str
) -> None:
    queue = f"small-{namespace}"
    body: Object = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": queue},
        "spec": {"weight": 1, "capability": {"cpu": "100m"}},
    }
    kube.create("queues", "", body)
    try:
        open_queue(kube, queue)
        jobs = [
            submit(job(name, UNTIL_TOLD, scheduling={"queue": queue}, cleanPodPolicy="All"))
            for name in ("one", "two")
        ]

        def running() -> list[JobHandle]:
            return [handle for handle in jobs if handle.phase == "Running"]

        kube.wait("one runs", lambda: len(running()) == 1, namespace)
        (first,) = running()
        (second,) = (handle for handle in jobs if handle.name != first.name)
        second.wait_condition("Placed", "False", "WaitingForScheduler")
        assert nodes_of(second) == ["", ""]
        first.tell()
        first.wait_phase("Succeeded")
        second.wait_started(0, 2)
        second.tell()
        second.wait_phase("Succeeded")
    finally:
        kube.delete("queues", "", queue)
