# SPDX-License-Identifier: Apache-2.0
"""All pods or none: a job that waits has no pod, says what it waits for, and starts when there is
room.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pytest
from jobs import UNTIL_TOLD, JobHandle, job, settings
from kube import ApiError, Kube, Object

Submit = Callable[[Object], JobHandle]


def free_room(kube: Kube) -> float:
    """CPUs of the smallest node."""
    return min(float(node["status"]["allocatable"]["cpu"]) for node in kube.list("nodes"))


def big(kube: Kube) -> dict[str, str]:
    """More than half of a node, so that each node takes one."""
    return {"cpu": f"{int(free_room(kube) * 550)}m", "memory": "32Mi"}


def test_job_waits_for_the_profile_that_it_names(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    profile = f"quick-{namespace}"
    named = {"runtimeProfileName": profile}
    handle = submit(job("profiled", UNTIL_TOLD, replicas=1, acceleration=named))
    handle.wait_condition("Placed", "False", "RuntimeProfileNotFound")
    assert profile in handle.condition("Placed")["message"] and handle.pods() == []
    body = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "RuntimeProfile",
        "metadata": {"name": profile},
    }
    with pytest.raises(ApiError, match="mode: Disabled contradicts"):
        kube.create(
            "runtimeprofiles",
            "",
            {**body, "spec": {"acceleration": {"mode": "Disabled", "loader": "Auto"}}},
        )
    kube.create("runtimeprofiles", "", {**body, "spec": {"acceleration": {"loader": "Disabled"}}})
    try:
        handle.wait_started(0, 1)
        asked = settings(handle.pods()[0])
        assert asked["PACELINE_OPTIMIZER"] == "Auto" and "PACELINE_LOADER" not in asked
        kept = {"profile": profile, "numerics": "Reordered", "loader": "Disabled"}
        kept["loaderWorkers"] = "Disabled"  # it needs the loader
        assert handle.status["acceleration"] == {
            **kept,
            "optimizer": "Auto",
            "communication": "Auto",
            "compile": "Auto",
            "operators": "Auto",
        }
        handle.tell()
        handle.wait_phase("Succeeded")
    finally:
        kube.delete("runtimeprofiles", "", profile)


def test_pods_come_together_and_go_after_success(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    body = job(
        "together",
        UNTIL_TOLD,
        replicas=3,
        processes=2,
        cleanPodPolicy="All",
        acceleration={"optimizer": "Disabled"},
    )
    handle = submit(body)
    handle.wait_started(0, 6)
    status = handle.wait_phase("Running")
    assert (status["ready"], status["readyPods"], status["totalPods"]) == ("3/3", 3, 3)
    pods = handle.pods()
    assert [pod["metadata"]["name"] for pod in pods] == [f"together-worker-{i}-0" for i in range(3)]
    assert all(pod["spec"]["hostname"] == f"together-worker-{i}" for i, pod in enumerate(pods))
    asked = settings(pods[0])
    assert (asked["PACELINE_LOADER"], asked["PACELINE_NUMERICS"]) == ("Auto", "Reordered")
    assert "PACELINE_OPTIMIZER" not in asked
    assert handle.condition("Placed")["status"] == "True"
    assert sum(node["pods"] for node in status["placement"]["nodes"]) == 3
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert status["completionTime"] and status["restarts"] == 0
    kube.wait("cleanPodPolicy All leaves no pod", lambda: not handle.pods(), namespace)
    handle.delete()
    for kind in ("trainingjobs", "services", "secrets"):
        kube.wait(
            f"no {kind} outlive the job",
            lambda kind=kind: not kube.list(kind, namespace),
            namespace,
        )


def test_job_that_does_not_fit_has_no_pod_and_starts_when_room_appears(
    kube: Kube, submit: Submit
) -> None:
    first = submit(job("first", UNTIL_TOLD, requests=big(kube), cleanPodPolicy="All"))
    first.wait_started(0, 2)
    second = submit(job("second", UNTIL_TOLD, requests=big(kube)))
    waiting = second.wait_condition("Placed", "False", "WaitingForRoom")
    assert "cpu" in waiting["message"], waiting
    assert second.phase == "Queued"
    assert second.pods() == []
    first.tell()
    first.wait_phase("Succeeded")
    second.wait_started(0, 2)
    second.tell()
    second.wait_phase("Succeeded")


def test_gangs_under_a_quota_run_one_after_the_other(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    quota = {"metadata": {"name": "three"}, "spec": {"hard": {"pods": "3"}}}
    kube.create("resourcequotas", namespace, quota)
    kube.wait(
        "the quota counts",
        lambda: kube.get("resourcequotas", namespace, "three").get("status", {}).get("used"),
        namespace,
    )
    since = kube.listing("pods", namespace)["metadata"]["resourceVersion"]
    script = 'echo "$PACELINE_JOB_NAME ran"; until [ -e /tmp/go ]; do sleep 0.1; done'
    handles = [submit(job(name, script, cleanPodPolicy="All")) for name in ("one", "two")]

    def look() -> None:
        # Of one listing. What has ended, or is going, holds no quota. The second gang may try while
        # the first runs: the quota then refuses its second pod, and its first stays gated.
        names = [
            pod["metadata"]["labels"]["paceline.dev/job"]
            for pod in kube.list("pods", namespace)
            if "deletionTimestamp" not in pod["metadata"]
            and not pod["spec"].get("schedulingGates")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        # The good end of one pod is the job's: the other one may be seen to run a moment longer.
        by_job = [0 if h.phase == "Succeeded" else names.count(h.name) for h in handles]
        assert 0 in by_job, f"both gangs run: {by_job}\n{kube.describe(namespace)}"

    def held_back() -> list[JobHandle]:
        """The gang that runs, and the one that the quota holds back."""
        look()
        for runs, waits in (handles, handles[::-1]):
            if runs.phase == "Running" and waits.condition("Placed")["reason"] == "QuotaExceeded":
                return [runs, waits]
        return []

    def has_come_to(handle: JobHandle, phase: str) -> bool:
        look()
        return handle.phase == phase

    runs, waits = kube.wait("one runs, and the other exceeds the quota", held_back, namespace)
    runs.tell()
    kube.wait("the other runs", lambda: has_come_to(waits, "Running"), namespace)
    waits.tell()
    for handle in (runs, waits):
        kube.wait(
            f"{handle.name} succeeds", lambda h=handle: has_come_to(h, "Succeeded"), namespace
        )
    spans = [(h.status["startTime"], h.status["completionTime"]) for h in handles]
    spans.sort(key=lambda span: datetime.fromisoformat(span[0].replace("Z", "+00:00")))
    assert spans[0][1] <= spans[1][0], f"they overlapped: {spans}"
    check_gates(kube.history("pods", namespace, since))


def check_gates(events: list[Object]) -> None:
    """Under a quota, pods are created gated, and no gate opens before both pods of a job exist. A
    gang that found no room before may have left pods, which are deleted.
    """
    standing: dict[str, set[str]] = {"one": set(), "two": set()}
    let_go: set[str] = set()
    for event in events:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        of_job = standing[pod["metadata"]["labels"]["paceline.dev/job"]]
        if event["type"] == "ADDED":
            assert pod["spec"]["schedulingGates"] == [{"name": "paceline.dev/gang"}]
            of_job.add(uid)
        elif event["type"] == "DELETED":
            of_job.discard(uid)
        elif not pod["spec"].get("schedulingGates") and uid not in let_go:
            name = pod["metadata"]["name"]
            assert len(of_job) == 2, f"{name} was let go when {len(of_job)} pods existed"
            let_go.add(uid)
    assert len(let_go) == 4


def test_job_bigger_than_the_cluster_says_so(kube: Kube, submit: Submit) -> None:
    handle = submit(job("giant", replicas=3, requests=big(kube)))
    condition = handle.wait_condition("Placed", "False", "TooLarge")
    assert "2 of 3 pods fit" in condition["message"], condition
    assert handle.pods() == []


def test_create_refused_half_way_leaves_nothing(kube: Kube, submit: Submit, namespace: str) -> None:
    """A policy of the API server lets the first pod pass and refuses the second; the operator
    cannot know beforehand. The launcher of the first waits, and from the second try on the pods are
    gated.
    """
    policy = f"refuse-{namespace}"
    group = "/apis/admissionregistration.k8s.io/v1"
    kube.request(
        "POST",
        f"{group}/validatingadmissionpolicies",
        {
            "metadata": {"name": policy},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "validations": [
                    {
                        "expression": "!object.metadata.name.startsWith('half-worker-1-')",
                        "message": "no second pod today",
                    }
                ],
            },
        },
    )
    kube.request(
        "POST",
        f"{group}/validatingadmissionpolicybindings",
        {
            "metadata": {"name": policy},
            "spec": {
                "policyName": policy,
                "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
                },
            },
        },
    )

    def refuses() -> bool:
        probe = {
            "metadata": {"name": "half-worker-1-probe"},
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        }
        done = kube.kubectl_result(
            "create", "-n", namespace, "--dry-run=server", "-f", "-", stdin=_as_pod(probe)
        )
        return "no second pod today" in done.stderr

    try:
        kube.wait("the policy is in force", refuses, namespace, poll=0.5)
        since = kube.listing("pods", namespace)["metadata"]["resourceVersion"]
        jobs_since = kube.listing("trainingjobs", namespace)["metadata"]["resourceVersion"]
        handle = submit(job("half", UNTIL_TOLD, replicas=2))

        def told() -> bool:
            return "no second pod today" in handle.condition("Placed")["message"]

        kube.wait("the refusal is told", told, namespace)
        # Between two tries, which come back every few seconds.
        kube.wait(
            "it is queued again, and nothing is left",
            lambda: handle.phase == "Queued" and not handle.pods(),
            namespace,
        )
        for event in kube.history("trainingjobs", namespace, jobs_since):
            assert event["object"].get("status", {}).get("phase") != "Running"
        events = kube.history("pods", namespace, since)
        open_pods = {
            event["object"]["metadata"]["uid"]
            for event in events
            if event["type"] == "ADDED" and not event["object"]["spec"].get("schedulingGates")
        }
        assert len(open_pods) <= 1, "pods of a later try had no gate"
        for event in events:
            pod = event["object"]
            assert pod["metadata"]["uid"] in open_pods or pod["spec"].get("nodeName") is None, (
                "a pod of the gang was bound after the refusal"
            )
    finally:
        kube.request("DELETE", f"{group}/validatingadmissionpolicybindings/{policy}")
        kube.request("DELETE", f"{group}/validatingadmissionpolicies/{policy}")
    handle.wait_started(None, 2)
    handle.tell()
    handle.wait_phase("Succeeded")


def _as_pod(body: Object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **body})


def test_suspend_removes_the_pods_and_resume_starts_anew(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    handle = submit(job("paused", UNTIL_TOLD))
    handle.wait_started(0, 2)
    before = set(handle.pod_uids())
    kube.patch("trainingjobs", namespace, "paused", {"spec": {"suspend": True}})
    handle.wait_phase("Suspended")
    assert all(pod["status"]["phase"] == "Failed" for pod in handle.pods())
    kube.wait("both pods are gone", lambda: not handle.pods(), namespace)
    kube.patch("trainingjobs", namespace, "paused", {"spec": {"suspend": False}})
    kube.wait(
        "two new pods run",
        lambda: len([p for p in handle.pods() if p["status"].get("phase") == "Running"]) == 2,
        namespace,
    )
    assert not before & set(handle.pod_uids())
    handle.wait_phase("Running")
    handle.wait_started(None, 2)
    handle.tell()
    status = handle.wait_phase("Succeeded")
    assert status["restarts"] == 0
