# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs of a LocalQueue: Kueue admits a part of them, and gets quota back when they shrink."""

from __future__ import annotations

from collections.abc import Callable

from jobs import UNTIL_TOLD, JobHandle
from kube import Kube, Object
from queues import Queue, condition, wait_condition, wait_workload, workload

Submit = Callable[[Object], JobHandle]


def elastic(queue: Queue, name: str, replicas: int, fewest: int) -> Object:
    body = queue.training_job(name, UNTIL_TOLD, cleanPodPolicy="All")
    del body["spec"]["roles"][0]["replicas"]
    bounds = {"minReplicas": fewest, "maxReplicas": 8}
    body["spec"]["elastic"] = {"role": "worker", "replicas": replicas, **bounds}
    return body


def scale(kube: Kube, handle: JobHandle, replicas: int) -> None:
    target = f"trainingjob/{handle.name}"
    kube.kubectl("scale", target, f"--replicas={replicas}", "-n", handle.namespace)


def end(handle: JobHandle) -> None:
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert (status["restarts"], status["disruptions"]) == (0, 0), status
    wait_condition(handle, "Finished", "True", "Succeeded")


def reclaimable(body: Object) -> list[Object]:
    found: list[Object] = body["status"].get("reclaimablePods", [])
    return found


def test_job_starts_with_the_part_that_has_quota(submit: Submit, queue: Queue) -> None:
    queue.create(pods=3)
    handle = submit(elastic(queue, "part", 4, fewest=2))
    handle.wait_started(0, 3)
    admitted = wait_condition(handle, "PodsReady", "True")
    (pod_set,) = admitted["spec"]["podSets"]
    assert (pod_set["count"], pod_set["minCount"]) == (4, 2)
    (assigned,) = admitted["status"]["admission"]["podSetAssignments"]
    assert assigned["count"] == 3, assigned
    status = handle.status
    assert status["elastic"]["replicas"] == 3, status
    assert status["elastic"]["message"].startswith("runs with 3 of 4 replicas: Kueue"), status
    assert len(handle.pods()) == 3
    queue.wait_reserved(3)
    end(handle)
    queue.wait_reserved(0)


def test_job_without_quota_for_its_fewest_waits(submit: Submit, queue: Queue) -> None:
    queue.create(pods=3)
    first = submit(elastic(queue, "first", 2, fewest=2))
    first.wait_started(0, 2)
    second = submit(elastic(queue, "second", 4, fewest=2))
    wait_condition(second, "QuotaReserved", "False")
    assert second.pods() == []
    end(first)
    second.wait_started(0, 3)
    end(second)
    queue.wait_reserved(0)


def test_shrunk_job_gives_its_quota_to_the_next(
    kube: Kube, submit: Submit, queue: Queue, namespace: str
) -> None:
    queue.create(pods=4)
    since = str(kube.listing("pods", namespace)["metadata"]["resourceVersion"])
    wide = submit(elastic(queue, "wide", 4, fewest=1))
    wide.wait_started(0, 4)
    wait_condition(wide, "PodsReady", "True")
    plain = submit(queue.training_job("plain", UNTIL_TOLD, cleanPodPolicy="All"))
    wait_condition(plain, "QuotaReserved", "False")
    scale(kube, wide, 2)
    wide.wait_started(1, 2)
    shrunk = wait_workload(wide, "gives back two pods", lambda body: bool(reclaimable(body)))
    assert reclaimable(shrunk) == [{"name": "worker", "count": 2}]
    plain.wait_started(0, 2)
    queue.wait_reserved(4)
    assert queue.most_pods(since) == 4
    end(plain)
    queue.wait_reserved(2)
    end(wide)
    queue.wait_reserved(0)


def test_evicted_job_asks_for_its_full_size_again(
    kube: Kube, submit: Submit, queue: Queue, namespace: str
) -> None:
    queue.create(pods=3)
    handle = submit(elastic(queue, "evicted", 3, fewest=1))
    handle.wait_started(0, 3)
    before = wait_condition(handle, "PodsReady", "True")["metadata"]
    scale(kube, handle, 2)
    handle.wait_started(1, 2)
    wait_workload(handle, "gives back a pod", lambda body: bool(reclaimable(body)))
    queue.wait_reserved(2)
    # The Workload was made for three, and is current again.
    scale(kube, handle, 3)
    queue.stop("HoldAndDrain")
    wait_condition(handle, "QuotaReserved", "False")
    after = workload(handle)
    assert after and after["metadata"]["uid"] == before["uid"]
    assert reclaimable(after) == [], after["status"]
    queue.stop("None")
    wait_workload(
        handle, "is admitted again", lambda body: condition(body, "Admitted")["status"] == "True"
    )
    handle.wait_started(2, 3)
    queue.wait_reserved(3)
    end(handle)
    queue.wait_reserved(0)
