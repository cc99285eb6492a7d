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
from job_properties import BASE, CASES, Case, Shown, pin_of, with_elastic
from jobs import JobHandle
from kube import ApiError, Kube, Object
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
def operator_at_work(admin: Kube, folder: Path) -> Iterator[Operator]:
    flags = ["--no-leader-elect", "--http-listen", f"127.0.0.1:{PORT}"]
    operator = Operator(admin.kubeconfig, folder, flags)
    operator.port = PORT
    operator.start()
    operator.wait_ready()
    try:
        yield operator
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
    elastic = spec.get("elastic", {}).get("replicas", 0)
    spares: int = spec.get("failurePolicy", {}).get("spares", 0)
    return spares + sum(role.get("replicas", elastic) for role in spec["roles"])


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


def wait_counts(handle: JobHandle, ready: int) -> None:
    """Of two pods so many run, and kubectl's column says the same as the numbers."""

    def told() -> bool:
        status = handle.status
        counts = (status.get("readyPods"), status.get("totalPods"), status.get("ready"))
        return counts == (ready, 2, f"{ready}/2")

    handle.kube.wait(f"{handle.name}: {ready} of 2 pods run", told, SPACE, timeout=60)


def test_suspended_job_has_no_pods(kube: Kube) -> None:
    handle = started(kube, "suspends")
    for suspended, pods in ((True, 0), (False, 2), (True, 0)):
        kube.patch("trainingjobs", SPACE, "suspends", {"spec": {"suspend": suspended}})
        wait_pods(handle, f"suspend: {suspended}", pods)
    assert not {"readyPods", "totalPods", "ready"} & handle.status.keys(), handle.status


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


def test_disruptions_have_a_bound(kube: Kube) -> None:
    """Two jobs lose a pod to an eviction. One of them allows none."""
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource."}
    handles = {}
    for name, most in (("none-left", 0), ("some-left", 5)):
        handles[name] = started(kube, name, failurePolicy={"maxDisruptions": most})
        bind(handles[name])
        write_pods(handles[name], "Running")
        handles[name].wait_phase("Running", timeout=60)
        pod = handles[name].pod_names()[1]
        kube.patch("pods", SPACE, pod, {"status": evicted}, "status")
    status = handles["none-left"].wait_phase("Failed", timeout=60)
    assert status["reason"] == "DisruptionsExhausted", status
    kept = handles["some-left"]
    kube.wait("it counts", lambda: kept.status.get("disruptions") == 1, SPACE, timeout=60)
    assert kept.status["restarts"] == 0
    for handle in handles.values():
        drop(handle)


def test_end_cleans_up_and_forgets(kube: Kube) -> None:
    """Both fields may change after the end."""
    handle = started(kube, "ends", cleanPodPolicy="None", ttlAfterFinished="1h")
    bind(handle)
    write_pods(handle, "Running")
    handle.wait_phase("Running", timeout=60)
    wait_counts(handle, 2)
    write_pods(handle, "Succeeded")
    status = handle.wait_phase("Succeeded", timeout=60)
    assert status["queue"] == SPACE, "a job that names no queue is in that of its namespace"
    wait_counts(handle, 0)
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


def test_elastic_job_starts_within_its_bounds(kube: Kube) -> None:
    """Of eight nodes each takes one pod. A job that wants nine gets eight, unless it needs nine."""
    wide = {"scheduling": {"podsPerNode": 1}}
    handles = {}
    for name, fewest in (("smaller", 1), ("waits", 9)):
        bounds = {"role": "worker", "replicas": 9, "minReplicas": fewest, "maxReplicas": 9}
        spec = with_elastic(merged(BASE["spec"], {**wide, "elastic": bounds}))
        handles[name] = create(kube, name, spec)
    wait_pods(handles["smaller"], "as many pods as there are nodes", 8)
    elastic = handles["smaller"].status["elastic"]
    assert elastic["replicas"] == 8 and "8 of 9 replicas" in elastic["message"], elastic
    assert elastic["selector"].endswith("paceline.dev/role=worker"), elastic
    handles["waits"].wait_phase("Queued", timeout=60)
    with pytest.raises(ApiError) as caught:
        scale = {"spec": {"replicas": 10}}
        kube.patch("trainingjobs", SPACE, "smaller", scale, "scale")
    assert "replicas must be from minReplicas to maxReplicas" in caught.value.message
    for handle in handles.values():
        drop(handle)


def test_priority_of_a_waiting_job_may_change(kube: Kube) -> None:
    """Both tokens are held, and two jobs wait for one. The younger one gets a higher priority."""

    def wants(name: str, priority: str) -> JobHandle:
        limits = {"limits": {"example.com/token": "1"}}
        spec = {"containers": [{"resources": limits}]}
        change = {
            "roles": [{"replicas": 1, "template": {"spec": spec}}],
            "scheduling": {"priorityClassName": priority},
        }
        return create(kube, name, merged(BASE["spec"], change))

    def change(name: str, **scheduling: str) -> None:
        kube.patch("trainingjobs", SPACE, name, {"spec": {"scheduling": scheduling}})

    holders = [wants("holds-one", "high"), wants("holds-two", "high")]
    for handle in holders:
        wait_pods(handle, "it holds a token", 1)
    waiting = [wants("waits-older", "low"), wants("waits-younger", "low")]
    for handle in waiting:
        handle.wait_condition("Placed", "False", "WaitingForRoom", timeout=60)
    change("waits-younger", priorityClassName="high")
    with pytest.raises(ApiError) as caught:
        change("holds-one", priorityClassName="low")
    assert "only while the job is queued or suspended" in caught.value.message
    drop(holders[0])
    wait_pods(waiting[1], "it has the higher priority", 1)
    assert waiting[0].pods() == []
    for handle in (*waiting, holders[1]):
        drop(handle)


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
        assert waiting[-1].status["queue"] == queue
    drop(holders[1])
    wait_pods(waiting[1], "it is next", 1)
    assert waiting[0].pods() == []
    for handle in (*holders, *waiting):
        drop(handle)


def test_waiting_job_asks_for_nodes(kube: Kube) -> None:
    """Two jobs that no node has room for: one holds its place by pods, the other only waits."""
    body = {"metadata": {"name": "paceline-placeholder"}, "value": -10, "preemptionPolicy": "Never"}
    kube.create("priorityclasses", "", body)

    def placeholders(name: str) -> list[Object]:
        return kube.list("pods", SPACE, labelSelector=f"paceline.dev/placeholder-for={name}")

    no_node = {"roles": [{"template": {"spec": {"nodeSelector": {"pool": "none"}}}}]}
    handles = []
    for name, way in (("silent", "Disabled"), ("asks", "Placeholders")):
        change = merged({"scheduling": {"provision": way}}, no_node)
        handles.append(create(kube, name, merged(BASE["spec"], change)))
    kube.wait(
        "a placeholder for each replica", lambda: len(placeholders("asks")) == 2, SPACE, timeout=60
    )
    assert placeholders("silent") == []
    for handle in handles:
        assert handle.pods() == []
        drop(handle)
    for pod in placeholders("asks"):
        kube.delete("pods", SPACE, pod["metadata"]["name"], gracePeriodSeconds="0")


def test_backend_says_who_chooses_the_nodes(kube: Kube) -> None:
    """This cluster has no PodGroups, and the job waits for them until Paceline places it."""
    remedies = {
        "Volcano": "podgroups.scheduling.volcano.sh (v1beta1): install Volcano",
        "Coscheduling": "podgroups.scheduling.x-k8s.io (v1alpha1): install Coscheduling",
        "PodGroup": "podgroups.scheduling.k8s.io (v1beta1): run Kubernetes 1.37",
        "KAI": "podgroups.scheduling.run.ai (v2alpha2): install KAI",
    }

    def choose(backend: str) -> None:
        for change in ({"suspend": True}, {"scheduling": {"backend": backend}}, {"suspend": False}):
            kube.patch("trainingjobs", SPACE, "left", {"spec": change})

    waiting = {"scheduling": {"queue": "team"}, "suspend": True}
    handle = create(kube, "left", merged(BASE["spec"], waiting))
    for backend, remedy in remedies.items():
        choose(backend)
        kube.wait(
            f"the job says how to get {backend}",
            lambda remedy=remedy: remedy in handle.condition("Placed")["message"],
            SPACE,
            timeout=60,
        )
        assert handle.condition("Placed")["reason"] == "SchedulerNotInstalled"
        assert handle.pods() == []
    choose("Native")
    wait_pods(handle, "Paceline places it", 2)
    assert all(pin_of(pod) for pod in handle.pods())
    drop(handle)


def test_pods_in_the_network_of_a_node_share_no_port(kube: Kube) -> None:
    """As the API server stores the pods, which kube-scheduler and kubelets read."""
    template = {"spec": {"hostNetwork": True}}
    here = {"roles": [{"template": template}], "scheduling": {"podsPerNode": 2}}
    handles = [started(kube, name, **here) for name in ("meets", "passes")]
    ports: list[tuple[str, int]] = []
    for handle in handles:
        for pod in handle.pods():
            declared = pod["spec"]["containers"][0]["ports"]
            assert [port["name"] for port in declared] == ["paceline-meet", "paceline-http"]
            assert all(port["hostPort"] == port["containerPort"] for port in declared)
            ports += [(pin_of(pod), port["hostPort"]) for port in declared]
            assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
        service = kube.get("services", SPACE, f"{handle.name}-rank0")
        assert "paceline-meet" in [port["targetPort"] for port in service["spec"]["ports"]]
    assert len(set(ports)) == len(ports) == 8, ports
    for handle in handles:
        drop(handle)


def test_required_leaf_is_waited_for(kube: Kube) -> None:
    """Two nodes are under two leaves, and then under one."""

    def put_under(node: str, leaf: str | None) -> None:
        kube.patch("nodes", "", node, {"metadata": {"labels": {"paceline.dev/leaf": leaf}}})

    put_under("effects-5", "left")
    put_under("effects-6", "right")
    change = {"scheduling": {"podsPerNode": 1}, "topology": {"required": "Leaf"}}
    handle = create(kube, "close", merged(BASE["spec"], change))
    handle.wait_condition("Placed", "False", "TooLarge")
    # Both labels reach the operator one after the other.
    words = "no leaf has room for all 2 pods of worker: the roomiest takes 1"
    kube.wait(
        "it tells of both leaves", lambda: words in handle.condition("Placed")["message"], SPACE
    )
    put_under("effects-6", "left")
    wait_pods(handle, "one leaf has room", 2)
    assert {pin_of(pod) for pod in handle.pods()} == {"effects-5", "effects-6"}
    assert handle.status["placement"]["where"] == "2 nodes in leaf left"
    drop(handle)
    for node in ("effects-5", "effects-6"):
        put_under(node, None)


def test_preferred_leaf_is_waited_for_within_a_limit(kube: Kube) -> None:
    """One of the two nodes of a leaf is full, and all others are under no leaf."""
    name = "kubernetes.io/hostname"
    for node in ("effects-5", "effects-6"):
        labels = {"paceline.dev/leaf": "left", name: node}
        kube.patch("nodes", "", node, {"metadata": {"labels": labels}})

    def using(cpu: str, **spec: Any) -> Object:
        containers = [{"resources": {"requests": {"cpu": cpu}}}]
        return {"template": {"spec": {"containers": containers, **spec}}}

    full = using("60", nodeSelector={name: "effects-5"})
    holder = started(kube, "fills", roles=[{"replicas": 1, **full}])
    handles = {}
    for job, limit in (("prefers-a-leaf", None), ("waits-for-a-leaf", "1h")):
        topology = {"preferred": "Leaf", **({"preferredTimeout": limit} if limit else {})}
        change = {
            "roles": [using("10")],
            "scheduling": {"podsPerNode": 1},
            "topology": topology,
        }
        handles[job] = create(kube, job, merged(BASE["spec"], change))
        handles[job].wait_condition("Placed", "False", "WaitingForCloserNodes", timeout=60)
    words = handles["prefers-a-leaf"].condition("Placed")["message"]
    assert "the roomiest takes 1; waits for one leaf until " in words, words
    kube.patch(
        "trainingjobs", SPACE, "prefers-a-leaf", {"spec": {"topology": {"preferredTimeout": "1s"}}}
    )
    wait_pods(handles["prefers-a-leaf"], "it has waited for long enough", 2)
    assert {pin_of(pod) for pod in handles["prefers-a-leaf"].pods()} != {"effects-5", "effects-6"}
    assert handles["waits-for-a-leaf"].pods() == []
    drop(holder)
    wait_pods(handles["waits-for-a-leaf"], "the leaf has room", 2)
    assert handles["waits-for-a-leaf"].status["placement"]["where"] == "2 nodes in leaf left"
    for handle in handles.values():
        drop(handle)
    for node in ("effects-5", "effects-6"):
        gone = {"paceline.dev/leaf": None, name: None}
        kube.patch("nodes", "", node, {"metadata": {"labels": gone}})
