# SPDX-License-Identifier: Apache-2.0
"""Jobs of a LocalQueue, admitted and evicted by Kueue's own controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from controller import Kueue
from jobs import UNTIL_TOLD, JobHandle
from kube import Kube, Object
from queues import (
    POD_CPU,
    POOL,
    PRIORITY_LABEL,
    Queue,
    condition,
    wait_condition,
    wait_stopped,
    wait_workload,
    workload,
)

Submit = Callable[[Object], JobHandle]


@pytest.fixture
def urgent(kube: Kube, queue: Queue) -> Iterator[str]:
    """A WorkloadPriorityClass above the priority of other jobs."""
    name = f"urgent-{queue.name}"
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
    body: Object = {**kind, "metadata": {"name": name}, "value": 1000}
    kube.create("workloadpriorityclasses", "", body)
    yield name
    kube.delete("workloadpriorityclasses", "", name)


def version_of_pods(kube: Kube, namespace: str) -> str:
    return str(kube.listing("pods", namespace)["metadata"]["resourceVersion"])


def run_to_its_end(handle: JobHandle) -> Object:
    """Ends a running job well; it has lost no attempt on the way."""
    handle.wait_started(None, 2)
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert status["restarts"] == 0, status
    wait_condition(handle, "Finished", "True", "Succeeded")
    return status


def test_job_runs_on_the_flavors_nodes_and_gives_its_quota_back(
    submit: Submit, queue: Queue
) -> None:
    queue.create(pods=2)
    handle = submit(queue.training_job("digits", UNTIL_TOLD))
    handle.wait_started(0, 2)
    admitted = wait_condition(handle, "PodsReady", "True")
    assert condition(admitted, "Admitted")["status"] == "True", admitted
    assert handle.status["placement"]["workload"] == admitted["metadata"]["name"]
    since = datetime.fromisoformat(condition(admitted, "Admitted")["lastTransitionTime"])
    for pod in handle.pods():
        assert pod["spec"]["nodeSelector"][POOL] == "node-2"
        assert pod["spec"]["nodeName"] == "node-2"
        waited = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) - since
        assert waited <= timedelta(seconds=10), "the pods come with the admission"
    queue.wait_reserved(2)
    run_to_its_end(handle)
    queue.wait_reserved(0)


def test_jobs_of_both_kinds_share_a_quota(
    kube: Kube, submit: Submit, queue: Queue, namespace: str
) -> None:
    queue.create(pods=2)
    since = version_of_pods(kube, namespace)
    first = submit(queue.training_job("first", UNTIL_TOLD, cleanPodPolicy="All"))
    first.wait_started(0, 2)
    second = submit(queue.training_job("second", "sleep 1", cleanPodPolicy="All"))
    kube.create("jobs", namespace, queue.batch_job("plain", "sleep 1", pods=2))
    waiting = second.wait_condition("Placed", "False", "WaitingForKueue")
    kube.wait(
        "the job says what Kueue says",
        lambda: "insufficient unused quota" in second.condition("Placed")["message"],
        namespace,
    )
    assert f"LocalQueue {queue.name}" in waiting["message"]
    assert second.phase == "Queued" and second.pods() == []
    assert kube.get("jobs", namespace, "plain")["spec"]["suspend"], "Kueue suspends what waits"
    first.tell()

    def both_ended() -> bool:
        assert queue.reserved() <= 2 * POD_CPU
        plain = kube.get("jobs", namespace, "plain")
        return second.phase == "Succeeded" and condition(plain, "Complete")["status"] == "True"

    kube.wait("both succeed", both_ended, namespace)
    assert queue.most_pods(since) == 2
    queue.wait_reserved(0)


def test_urgent_job_preempts_and_the_victim_runs_again(
    kube: Kube, submit: Submit, queue: Queue, urgent: str, namespace: str
) -> None:
    queue.create(pods=2)
    since = version_of_pods(kube, namespace)
    victim = submit(queue.training_job("victim", UNTIL_TOLD, cleanPodPolicy="All"))
    victim.wait_started(0, 2)
    before = wait_condition(victim, "PodsReady", "True")
    handle = submit(queue.training_job("urgent", UNTIL_TOLD, urgent, cleanPodPolicy="All"))
    handle.wait_started(0, 2)
    evicted = wait_condition(victim, "Evicted", "True", "Preempted")
    assert condition(evicted, "QuotaReserved")["status"] == "False", evicted
    assert condition(evicted, "Requeued")["status"] == "True", evicted
    assert "admission" not in evicted["status"]
    assert victim.pods() == [] and victim.phase == "Queued"
    run_to_its_end(handle)
    run_to_its_end(victim)
    after = workload(victim)
    assert after and after["metadata"]["uid"] == before["metadata"]["uid"]
    assert queue.most_pods(since) == 2
    queue.wait_reserved(0)


def test_waiting_job_with_a_new_priority_passes_those_before_it(
    kube: Kube, submit: Submit, queue: Queue, urgent: str, namespace: str
) -> None:
    queue.create(pods=2, preemption={"withinClusterQueue": "Never"})
    running = submit(queue.training_job("running", UNTIL_TOLD, cleanPodPolicy="All"))
    running.wait_started(0, 2)
    first = submit(queue.training_job("first", UNTIL_TOLD, cleanPodPolicy="All"))
    wait_workload(first, "exists", lambda body: True)
    second = submit(queue.training_job("second", UNTIL_TOLD, cleanPodPolicy="All"))
    before = wait_workload(second, "exists", lambda body: True)
    labels = {"metadata": {"labels": {PRIORITY_LABEL: urgent}}}
    kube.patch("trainingjobs", namespace, "second", labels)
    after = wait_workload(second, "has its priority", lambda body: body["spec"]["priority"] == 1000)
    assert after["spec"]["priorityClassRef"]["name"] == urgent, after["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    run_to_its_end(running)
    second.wait_started(0, 2)
    assert first.pods() == [], "the one that came first waits"
    run_to_its_end(second)
    run_to_its_end(first)
    queue.wait_reserved(0)


def test_admitted_job_changes_its_priority_class(
    kube: Kube, submit: Submit, queue: Queue, urgent: str, namespace: str
) -> None:
    calm = f"calm-{queue.name}"
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
    kube.create("workloadpriorityclasses", "", {**kind, "metadata": {"name": calm}, "value": 1})
    try:
        queue.create(pods=2)
        handle = submit(queue.training_job("digits", UNTIL_TOLD, calm))
        handle.wait_started(0, 2)
        wait_condition(handle, "PodsReady", "True")
        labels = {"metadata": {"labels": {PRIORITY_LABEL: urgent}}}
        kube.patch("trainingjobs", namespace, "digits", labels)
        wait_workload(handle, "has its priority", lambda body: body["spec"]["priority"] == 1000)
        run_to_its_end(handle)
    finally:
        kube.delete("workloadpriorityclasses", "", calm)


def test_deactivated_workload_stops_the_gang_until_it_is_active_again(
    kube: Kube, submit: Submit, queue: Queue, namespace: str
) -> None:
    queue.create(pods=2)
    handle = submit(queue.training_job("paused", UNTIL_TOLD))
    handle.wait_started(0, 2)
    name = wait_condition(handle, "PodsReady", "True")["metadata"]["name"]
    kube.patch("workloads", namespace, name, {"spec": {"active": False}})
    wait_condition(handle, "QuotaReserved", "False")
    wait_condition(handle, "Evicted", "True", "Deactivated")
    wait_stopped(handle)
    assert handle.phase == "Queued"
    handle.wait_condition("Placed", "False", "WaitingForKueue")
    queue.wait_reserved(0)
    kube.patch("workloads", namespace, name, {"spec": {"active": True}})
    run_to_its_end(handle)
    queue.wait_reserved(0)


def test_suspended_job_has_no_workload(
    kube: Kube, submit: Submit, queue: Queue, namespace: str
) -> None:
    queue.create(pods=2)
    handle = submit(queue.training_job("held", UNTIL_TOLD))
    handle.wait_started(0, 2)
    before = wait_condition(handle, "PodsReady", "True")["metadata"]["uid"]
    kube.patch("trainingjobs", namespace, "held", {"spec": {"suspend": True}})
    handle.wait_phase("Suspended")
    kube.wait("its Workload is gone", lambda: workload(handle) is None, namespace)
    kube.wait("its pods are gone", lambda: not handle.pods(), namespace)
    queue.wait_reserved(0)
    kube.patch("trainingjobs", namespace, "held", {"spec": {"suspend": False}})
    wait_workload(handle, "is a new one", lambda body: body["metadata"]["uid"] != before)
    run_to_its_end(handle)
    queue.wait_reserved(0)


def test_drained_cluster_queue_stops_its_jobs_until_it_opens(submit: Submit, queue: Queue) -> None:
    queue.create(pods=2)
    handle = submit(queue.training_job("drained", UNTIL_TOLD))
    handle.wait_started(0, 2)
    wait_condition(handle, "PodsReady", "True")
    queue.stop("HoldAndDrain")
    wait_condition(handle, "Evicted", "True", "ClusterQueueStopped")
    wait_stopped(handle)
    wait_condition(handle, "QuotaReserved", "False")
    queue.stop("None")
    run_to_its_end(handle)
    queue.wait_reserved(0)


def test_job_whose_workload_is_deleted_asks_again(
    kube: Kube, submit: Submit, queue: Queue, namespace: str
) -> None:
    queue.create(pods=2)
    since = version_of_pods(kube, namespace)
    handle = submit(queue.training_job("robbed", UNTIL_TOLD))
    handle.wait_started(0, 2)
    before = wait_condition(handle, "PodsReady", "True")["metadata"]
    uids = handle.pod_uids()
    kube.delete("workloads", namespace, before["name"])
    wait_workload(handle, "is a new one", lambda body: body["metadata"]["uid"] != before["uid"])
    kube.wait("its pods are new", lambda: not set(uids) & set(handle.pod_uids()), namespace)
    run_to_its_end(handle)
    assert queue.most_pods(since) == 2
    queue.wait_reserved(0)


def test_job_without_room_is_evicted_when_kueue_waits_for_its_pods(
    kube: Kube, kueue: Kueue, submit: Submit, queue: Queue, namespace: str
) -> None:
    """Kueue starts again meanwhile, so this also shows that a running job keeps its quota."""
    queue.create(pods=4)
    running = submit(queue.training_job("running", UNTIL_TOLD))
    running.wait_started(0, 2)
    wait_condition(running, "PodsReady", "True")
    uids = running.pod_uids()
    kueue.stop()
    patience = {"timeout": "5s", "requeuingStrategy": {"backoffBaseSeconds": 1}}
    kube.patch("nodes", "", "node-2", {"spec": {"unschedulable": True}})
    try:
        kueue.start(waitForPodsReady=patience)
        kueue.wait_ready()
        stuck = submit(queue.training_job("stuck", UNTIL_TOLD))
        wait_condition(stuck, "Evicted", "True", "PodsReadyTimeout")
        wait_condition(stuck, "QuotaReserved", "False")
        assert stuck.pods() == []
        queue.wait_reserved(2)
        # The run that must succeed may take longer than this patience.
        kueue.stop()
        kueue.start()
        kueue.wait_ready()
        kube.patch("nodes", "", "node-2", {"spec": {"unschedulable": None}})
        run_to_its_end(stuck)
        assert running.pod_uids() == uids
        run_to_its_end(running)
        queue.wait_reserved(0)
    finally:
        kube.patch("nodes", "", "node-2", {"spec": {"unschedulable": None}})
        kueue.stop()
        kueue.start()
        kueue.wait_ready()
