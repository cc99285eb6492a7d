# SPDX-License-Identifier: Apache-2.0
"""What the operator makes of each property of a TrainingJob, on the real API server. Nodes are
objects without a kubelet, and no scheduler runs: the pods tell what the operator wanted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from job_properties import BASE, CASES, Case, Shown, pin_of
from jobs import JobHandle
from kube import Kube, Object
from schemas import merged
from test_properties import spec_properties
from testbed import Operator

SPACE = "effects"
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "250", "nvidia.com/gpu": "64"}
PORT = 18081


def add_node(kube: Kube, name: str, more: dict[str, str]) -> None:
    kube.create("nodes", "", {"metadata": {"name": name}})
    allocatable = {**ROOM, **more}
    tell_node(kube, name, "True", {"capacity": allocatable, "allocatable": allocatable})
    # Admission taints every new node; the controller that would lift it does not run here.
    kube.patch("nodes", "", name, {"spec": {"taints": None}})


def tell_node(kube: Kube, name: str, ready: str, more: Object | None = None) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": now}
    status = {**(more or {}), "conditions": [condition]}
    kube.patch("nodes", "", name, {"status": status}, "status")


@contextmanager
def nodes_named(admin: Kube, prefix: str) -> Iterator[None]:
    """Eight nodes named after the prefix; the first one has two tokens."""
    nodes = [f"{prefix}-{number}" for number in range(8)]
    for name in nodes:
        add_node(admin, name, {"example.com/token": "2"} if name == nodes[0] else {})
    try:
        yield
    finally:
        for name in nodes:
            admin.delete("nodes", "", name)


@contextmanager
def operator_at_work(admin: Kube, folder: Path) -> Iterator[None]:
    flags = ["--no-leader-elect", "--http-listen", f"127.0.0.1:{PORT}"]
    operator = Operator(admin.kubeconfig, folder, flags)
    operator.port = PORT
    operator.start()
    operator.wait_ready()
    try:
        yield
        assert "internal error" not in operator.log.read_text(errors="replace"), operator.tail()
        assert operator.stop() == 0, operator.tail()
    finally:
        operator.stop()


@pytest.fixture(scope="module")
def kube(admin: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """The API server with nodes, profiles, classes and a namespace, and an operator at work."""
    admin.create("namespaces", "", {"metadata": {"name": SPACE}})
    for name, value in (("low", 1), ("high", 2)):
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        admin.create("priorityclasses", "", body)
    for name, numerics in (("quick", "Reordered"), ("exact", "Bitwise")):
        spec = {"acceleration": {"numerics": numerics}}
        head = {"apiVersion": "paceline.dev/v1alpha1", "kind": "RuntimeProfile"}
        admin.create("runtimeprofiles", "", {**head, "metadata": {"name": name}, "spec": spec})
    folder = tmp_path_factory.mktemp("operator")
    with nodes_named(admin, "effects"), operator_at_work(admin, folder):
        yield admin


def create(kube: Kube, name: str, spec: Object) -> JobHandle:
    kube.create("trainingjobs", SPACE, {**BASE, "metadata": {"name": name}, "spec": spec})
    return JobHandle(kube, SPACE, name)


def drop(handle: JobHandle) -> None:
    """Deletes the job with its pods: no garbage collector runs here."""
    handle.delete()
    for name in handle.pod_names():
        handle.kube.delete("pods", SPACE, name, gracePeriodSeconds="0")


def write(handle: JobHandle, spec: Object) -> None:
    """Replaces the spec, whatever the operator writes beside."""
    path = handle.kube.path("trainingjobs", SPACE, handle.name)
    change = [{"op": "replace", "path": "/spec", "value": spec}]
    handle.kube.request("PATCH", path, change, "application/json-patch+json")


def replicas(spec: Object) -> int:
    return sum(role["replicas"] for role in spec["roles"])


def shown(handle: JobHandle, spec: Object) -> Shown | None:
    """What the operator has made of the spec, once all pods are there."""
    pods = [pod for pod in handle.pods() if "deletionTimestamp" not in pod["metadata"]]
    done = len(pods) == replicas(spec) and handle.condition("Placed")["status"] == "True"
    return Shown(pods, handle.status) if done else None


def wait_shown(handle: JobHandle, spec: Object) -> Shown:
    found = handle.kube.wait(
        f"{handle.name} has its pods", lambda: shown(handle, spec), SPACE, timeout=60
    )
    assert found
    return found


def look_at_all(
    kube: Kube, chosen: list[tuple[str, JobHandle, Case]], paths: dict[str, Any], which: str
) -> dict[str, Any]:
    """Suspends all jobs, writes a, b or none of each property, resumes, and looks."""
    specs: dict[str, Object] = {}
    for name, handle, case in chosen:
        value = {"a": case.a, "b": case.b, "none": None}[which]
        specs[name] = case.document(paths[name], value)
        kube.patch("trainingjobs", SPACE, handle.name, {"spec": {"suspend": True}})
        write(handle, {**specs[name], "suspend": True})
    for _, handle, _ in chosen:
        handle.wait_condition("Suspended", "True", timeout=60)
        kube.patch("trainingjobs", SPACE, handle.name, {"spec": {"suspend": False}})
    found = {}
    for name, handle, case in chosen:
        assert case.look
        found[name] = case.look(wait_shown(handle, specs[name]))
    return found


def test_each_property_acts_and_acts_again(kube: Kube) -> None:
    """A -> B -> A of all properties whose effect a pod or the status shows at once; without the
    property, a job is as one that never had it.
    """
    paths = {str(prop): prop.path for prop in spec_properties()}
    chosen = []
    plain: dict[str, Any] = {}
    for number, (name, case) in enumerate(CASES.items()):
        if not case.look:
            assert case.test in globals(), f"no test shows the effect of {name}"
            continue
        spec = case.document(paths[name], None if not case.required else case.a)
        handle = create(kube, f"acts-{number}", spec)
        plain[name] = case.look(wait_shown(handle, spec))
        chosen.append((name, handle, case))
    for which in ("a", "b", "a", "none"):
        kept = [entry for entry in chosen if which != "none" or not entry[2].required]
        found = look_at_all(kube, kept, paths, which)
        for name, _, case in kept:
            want = {"a": case.seen[0], "b": case.seen[1], "none": plain[name]}[which]
            assert found[name] == want, f"{name}, {which}: {found[name]} instead of {want}"
    print(f"{len(chosen)} properties")  # the others have tests of their own below
    for _, handle, _ in chosen:
        drop(handle)


def started(kube: Kube, name: str, **spec: Any) -> JobHandle:
    """A new job of two pods that are created."""
    body = merged(BASE["spec"], spec)
    handle = create(kube, name, body)
    wait_shown(handle, body)
    return handle


def write_pods(handle: JobHandle, phase: str) -> None:
    """Writes the phase of the job's pods, as their kubelets would."""
    state: Object = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    if phase == "Succeeded":
        state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    for pod in handle.pods():
        name = pod["metadata"]["name"]
        container = {"name": "trainer", "state": state, "ready": phase == "Running"}
        container |= {"restartCount": 0, "image": "none", "imageID": "none"}
        status = {"phase": phase, "containerStatuses": [container]}
        handle.kube.patch("pods", SPACE, name, {"status": status}, "status")


def bind(handle: JobHandle) -> dict[str, str]:
    """Binds the pods to the nodes that they are pinned to, as a scheduler would. Answers the nodes
    by pod.
    """

    def ungated() -> bool:
        return all(not pod["spec"].get("schedulingGates") for pod in handle.pods())

    handle.kube.wait(f"{handle.name} is ungated", ungated, SPACE, timeout=60)
    nodes = {}
    for pod in handle.pods():
        name = pod["metadata"]["name"]
        nodes[name] = pin_of(pod)
        target = {"apiVersion": "v1", "kind": "Node", "name": nodes[name]}
        body = {"metadata": {"name": name}, "target": target}
        handle.kube.request("POST", handle.kube.path("pods", SPACE, name, "binding"), body)
    return nodes


def wait_pods(handle: JobHandle, what: str, count: int) -> None:
    handle.kube.wait(
        f"{handle.name}: {what}", lambda: len(handle.pods()) == count, SPACE, timeout=60
    )


def test_suspended_job_has_no_pods(kube: Kube) -> None:
    handle = started(kube, "suspends")
    for suspended, pods in ((True, 0), (False, 2), (True, 0)):
        kube.patch("trainingjobs", SPACE, "suspends", {"spec": {"suspend": suspended}})
        wait_pods(handle, f"suspend: {suspended}", pods)


def test_job_of_another_manager_is_left_alone(kube: Kube) -> None:
    other = create(kube, "others", {**BASE["spec"], "managedBy": "nobody.example/else"})
    handle = started(kube, "ours", managedBy="paceline.dev/operator")
    assert other.pods() == [] and other.status == {}
    drop(handle)


def test_deadline_ends_a_running_job(kube: Kube) -> None:
    """Written while the job runs; longer, away, and short again."""
    handle = started(kube, "deadline", activeDeadline="1h")
    for value in (None, "2h"):
        kube.patch("trainingjobs", SPACE, "deadline", {"spec": {"activeDeadline": value}})
        assert len(handle.pods()) == 2
    kube.patch("trainingjobs", SPACE, "deadline", {"spec": {"activeDeadline": "1s"}})
    status = handle.wait_phase("Failed", timeout=60)
    assert status["reason"] == "DeadlineExceeded", status


def test_gang_timeout_takes_the_set_back(kube: Kube) -> None:
    patient = started(kube, "patient", scheduling={"gangTimeout": "10m"})
    kept = patient.pod_uids()
    handle = started(kube, "hasty", scheduling={"gangTimeout": "1s"})
    first = handle.pod_uids()
    kube.wait(
        "the unbound pods are removed",
        lambda: not set(first) & set(handle.pod_uids()),
        SPACE,
        timeout=60,
    )
    assert patient.pod_uids() == kept
    drop(handle)
    drop(patient)


def test_lost_node_is_left(kube: Kube) -> None:
    """Two jobs, one of them patient, on a node that falls silent: one leaves it."""
    node = "effects-7"
    select = {"kubernetes.io/hostname": node}
    kube.patch("nodes", "", node, {"metadata": {"labels": select}})
    pod = {"roles": [{"template": {"spec": {"nodeSelector": select}}}]}
    handles = {}
    for name, after in (("leaves", "1s"), ("stays", "1h")):
        policy = {"forceDeleteAfter": after}
        handles[name] = started(kube, name, **merged({"failurePolicy": policy}, pod))
        assert set(bind(handles[name]).values()) == {node}
        write_pods(handles[name], "Running")
    stays = handles["stays"].pod_uids()
    leaves = handles["leaves"].pod_uids()
    tell_node(kube, node, "Unknown")
    kube.wait(
        "the pods on the lost node are removed",
        lambda: not set(leaves) & set(handles["leaves"].pod_uids()),
        SPACE,
        timeout=60,
    )
    assert handles["stays"].pod_uids() == stays
    for handle in handles.values():
        drop(handle)
    tell_node(kube, node, "True")


def test_end_cleans_up_and_forgets(kube: Kube) -> None:
    """Both fields may change after the end."""
    handle = started(kube, "ends", cleanPodPolicy="None", ttlAfterFinished="1h")
    bind(handle)
    write_pods(handle, "Running")
    write_pods(handle, "Succeeded")
    handle.wait_phase("Succeeded", timeout=60)
    assert len(handle.pods()) == 2
    kube.patch("trainingjobs", SPACE, "ends", {"spec": {"cleanPodPolicy": "All"}})
    wait_pods(handle, "cleanPodPolicy: All", 0)
    kube.patch("trainingjobs", SPACE, "ends", {"spec": {"ttlAfterFinished": "1s"}})
    kube.wait(
        "the job is deleted",
        lambda: not kube.find("trainingjobs", SPACE, "ends"),
        SPACE,
        timeout=60,
    )


def test_queue_decides_who_is_next(kube: Kube) -> None:
    """Two tokens are held by queues a and x. The one of x is given back: a waits behind b."""

    def wants(name: str, queue: str) -> JobHandle:
        limits = {"limits": {"example.com/token": "1"}}
        spec = {"containers": [{"resources": limits}]}
        change = {
            "roles": [{"replicas": 1, "template": {"spec": spec}}],
            "scheduling": {"queue": queue},
        }
        return create(kube, name, merged(BASE["spec"], change))

    holders = [wants("holds-a", "a"), wants("holds-x", "x")]
    for handle in holders:
        wait_pods(handle, "it holds a token", 1)
    waiting = []
    for name, queue in (("waits-a", "a"), ("waits-b", "b")):
        waiting.append(wants(name, queue))
        waiting[-1].wait_condition("Placed", "False", "WaitingForRoom", timeout=60)
    drop(holders[1])
    wait_pods(waiting[1], "it is next", 1)
    assert waiting[0].pods() == []
    for handle in (*holders, *waiting):
        drop(handle)
