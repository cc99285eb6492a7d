# SPDX-License-Identifier: Apache-2.0
"""The planner against the real kube-scheduler, on nodes without a kubelet and jobs made at random:
every plan binds, and where the planner sees no room for a gang, the scheduler sees none either.

PACELINE_PLANS_SEED and PACELINE_PLANS_JOBS choose another world and a longer walk.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jobs import IMAGE, JobHandle, role
from kube import ApiError, Kube, Object
from testbed import Operator

Submit = Callable[[Object], JobHandle]

SEED = int(os.environ.get("PACELINE_PLANS_SEED", "1"))
JOBS = int(os.environ.get("PACELINE_PLANS_JOBS", "40"))
NODES = 14
ONLY_HERE = {"paceline.test/virtual": "yes"}
# An eighth of the grace that the test cluster gives a node whose lease is not renewed.
RENEW_SECONDS = 1.0
NO_ROOM = ("WaitingForRoom", "TooLarge")

Containers = list[dict[str, Any]]


class World:
    """Nodes and pods made at random. Amounts come in every way of writing a quantity."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def maybe(self, chance: float) -> bool:
        return self.dice.random() < chance

    def node(self, number: int) -> Object:
        dice = self.dice
        labels = {
            **ONLY_HERE,
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": f"virtual-{number}",
            "topology.kubernetes.io/zone": dice.choice(["a", "b"]),
            "paceline.test/generation": str(dice.randint(1, 12)),
        }
        if self.maybe(0.5):
            labels["paceline.test/fast"] = ""
        taints = []
        if self.maybe(0.3):
            effect = dice.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
            taints.append({"key": "paceline.test/team", "value": "red", "effect": effect})
        amounts = {
            "cpu": dice.choice(["4", "6500m", "8"]),
            "memory": dice.choice(["8Gi", "9000000k", "10000Mi", "8589934593"]),
            "pods": str(dice.randint(3, 9)),
            "ephemeral-storage": dice.choice(["20Gi", "10G"]),
        }
        if self.maybe(0.6):
            amounts["nvidia.com/gpu"] = dice.choice(["2", "4"])
        if self.maybe(0.3):
            amounts["hugepages-2Mi"] = "64Mi"
        spec: Object = {"taints": taints} if taints else {}
        if self.maybe(0.1):
            spec["unschedulable"] = True
        return {
            "metadata": {"name": f"virtual-{number}", "labels": labels},
            "spec": spec,
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Virtual"}],
            },
        }

    def resources(self, most: float) -> Object:
        """Of one container; `most` scales it against a node."""
        dice = self.dice
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if self.maybe(0.8):
            milli = int(most * dice.randint(50, 2500))
            requests["cpu"] = dice.choice([f"{milli}m", f"{milli / 1000:.2f}", f"{milli}e-3"])
        if self.maybe(0.8):
            mebi = max(1, int(most * dice.randint(16, 4096)))
            # A limit alone is the request too.
            target = limits if self.maybe(0.3) else requests
            target["memory"] = dice.choice([f"{mebi}Mi", f"{mebi * 1048576}", f"{mebi}M"])
        if self.maybe(0.1):
            requests["ephemeral-storage"] = dice.choice(["1Gi", "3G"])
        if self.maybe(0.3):
            limits["nvidia.com/gpu"] = str(dice.choice([1, 1, 2, 4]))
        if self.maybe(0.08) and "memory" in {**requests, **limits}:
            limits["hugepages-2Mi"] = "16Mi"
        return {"requests": requests, "limits": limits}

    def container(self, name: str, most: float) -> dict[str, Any]:
        return {
            "name": name,
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/true"],
            "resources": self.resources(most),
        }

    def pod(self) -> Object:
        dice = self.dice
        spec: Object = {
            "nodeSelector": dict(ONLY_HERE),
            "containers": [self.container("trainer", 1)],
        }
        if self.maybe(0.2):
            spec["containers"].append(self.container("helper", 0.2))
        before: Containers = []
        if self.maybe(0.25):
            before.append(self.container("prepare", 1.5))
        if self.maybe(0.25):
            before.append({**self.container("sidecar", 0.2), "restartPolicy": "Always"})
        dice.shuffle(before)
        if before:
            spec["initContainers"] = before
        if self.maybe(0.3):
            spec["nodeSelector"]["topology.kubernetes.io/zone"] = dice.choice(["a", "b"])
        if self.maybe(0.4):
            spec["affinity"] = {"nodeAffinity": self.affinity()}
        if self.maybe(0.4):
            spec["tolerations"] = [self.toleration()]
        return spec

    def requirement(self) -> Object:
        number = str(self.dice.randint(1, 12))
        return self.dice.choice(
            [
                {"key": "paceline.test/fast", "operator": "Exists"},
                {"key": "paceline.test/fast", "operator": "DoesNotExist"},
                {"key": "paceline.test/fast", "operator": "In", "values": [""]},
                {"key": "paceline.test/generation", "operator": "Gt", "values": [number]},
                {"key": "paceline.test/generation", "operator": "Lt", "values": [number]},
                {"key": "paceline.test/absent", "operator": "NotIn", "values": ["x"]},
                {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["b", "c"]},
            ]
        )

    def affinity(self) -> Object:
        terms = [
            {"matchExpressions": [self.requirement() for _ in range(self.dice.randint(1, 2))]}
            for _ in range(self.dice.randint(1, 2))
        ]
        if self.maybe(0.2):
            name = f"virtual-{self.dice.randrange(NODES)}"
            field = {"key": "metadata.name", "operator": "NotIn", "values": [name]}
            terms[0]["matchFields"] = [field]
        affinity: Object = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
        if self.maybe(0.3):
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": 100, "preference": {"matchExpressions": [self.requirement()]}}
            ]
        return affinity

    def toleration(self) -> Object:
        """None tolerates every taint: the scheduler puts such a pod on a cordoned node, and the
        planner never does.
        """
        return self.dice.choice(
            [
                {"key": "paceline.test/team", "operator": "Exists"},
                {"key": "paceline.test/team", "value": "red"},
                {"key": "paceline.test/team", "value": "red", "effect": "NoSchedule"},
                {"key": "paceline.test/team", "operator": "Equal", "value": "blue"},
                {"key": "paceline.test/team", "operator": "Exists", "effect": "NoExecute"},
            ]
        )

    def job(self, number: int) -> Object:
        dice = self.dice
        roles = [role("worker", dice.choice([1, 1, 2, 3, 5, 8]), {})]
        if self.maybe(0.3):
            roles.append({**role("server", dice.randint(1, 3), {}), "kind": "ParameterServer"})
        for entry in roles:
            entry["template"]["spec"] = self.pod()
        spec: Object = {"framework": {"type": "Custom"}, "roles": roles}
        if self.maybe(0.15):
            spec["topology"] = {"required": "Zone"}
        if self.maybe(0.15):
            spec["scheduling"] = {"podsPerNode": dice.randint(1, 2)}
        return {
            "apiVersion": "paceline.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": f"random-{number}"},
            "spec": spec,
        }


class Cluster:
    """The virtual nodes, and questions to the scheduler about them."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    def remove_pods(self, **query: str) -> None:
        """No kubelet ends them."""
        for pod in self.kube.list("pods", self.namespace, **query):
            name = pod["metadata"]["name"]
            self.kube.delete("pods", self.namespace, name, gracePeriodSeconds="0")

    def end(self, handle: JobHandle) -> None:
        handle.delete()
        self.kube.wait(
            f"{handle.name} is gone",
            lambda: self.kube.find("trainingjobs", self.namespace, handle.name) is None,
            self.namespace,
        )
        selector = f"paceline.dev/job={handle.name}"

        def removed() -> bool:
            self.remove_pods(labelSelector=selector)
            return not self.kube.list("pods", self.namespace, labelSelector=selector)

        self.kube.wait(f"the pods of {handle.name} are gone", removed, self.namespace)

    def verdict(self, pod: Object) -> str | None:
        """The node that the scheduler has bound the pod to; "" if it found none; None before."""
        if pod["spec"].get("nodeName"):
            return str(pod["spec"]["nodeName"])
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return "" if condition.get("reason") == "Unschedulable" else None
        return None

    def places(self, spec: Object, count: int) -> int:
        """How many of so many plain pods of this spec the scheduler has put on nodes."""
        names = [f"asks-{number}" for number in range(count)]
        for name in names:
            body = {"metadata": {"name": name}, "spec": copy.deepcopy(spec)}
            self.kube.create("pods", self.namespace, body)

        def answers() -> list[str]:
            found = [self.verdict(self.kube.get("pods", self.namespace, name)) for name in names]
            return [] if None in found else [str(node) for node in found]

        found = self.kube.wait("the scheduler answers", answers, self.namespace)
        for name in names:
            self.kube.delete("pods", self.namespace, name, gracePeriodSeconds="0")
        return len([node for node in found if node])


def lease_of(node: str) -> Object:
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}


def keep_alive(kube: Kube, ended: threading.Event) -> None:
    """What a kubelet does so that its node stays ready. A renewal that fails comes again with the
    next ones.
    """
    while not ended.wait(RENEW_SECONDS):
        for name in (f"virtual-{number}" for number in range(NODES)):
            with contextlib.suppress(OSError, http.client.HTTPException, ApiError):
                kube.patch("leases", "kube-node-lease", name, {"spec": lease_of(name)})


@pytest.fixture
def world(kube: Kube, namespace: str) -> Iterator[tuple[World, Cluster]]:
    made = World(SEED)
    cluster = Cluster(kube, namespace)
    ended = threading.Event()
    # A thread of its own: the test's looks may each take longer than the grace.
    alive = threading.Thread(target=keep_alive, args=(kube.again(), ended))
    alive.start()
    try:
        for number in range(NODES):
            name = f"virtual-{number}"
            lease = {"metadata": {"name": name}, "spec": lease_of(name)}
            kube.create("leases", "kube-node-lease", lease)
            kube.create("nodes", "", made.node(number))

        def admitted() -> bool:
            """The node controller has taken its own taint away."""
            nodes = [kube.get("nodes", "", f"virtual-{number}") for number in range(NODES)]
            taints = [taint["key"] for node in nodes for taint in node["spec"].get("taints", [])]
            return "node.kubernetes.io/not-ready" not in taints

        kube.wait("the virtual nodes are ready", admitted)
        yield made, cluster
    finally:
        ended.set()
        alive.join()
        cluster.remove_pods()
        for number in range(NODES):
            kube.delete("nodes", "", f"virtual-{number}")
            kube.delete("leases", "kube-node-lease", f"virtual-{number}")


def put_foreign_pods(made: World, cluster: Cluster) -> None:
    """Pods of others, also on nodes that they overload."""
    for number in range(NODES):
        spec = made.pod()
        spec = {key: spec[key] for key in ("containers", "initContainers") if key in spec}
        spec["nodeName"] = f"virtual-{number}"
        body = {"metadata": {"name": f"foreign-{number}"}, "spec": spec}
        cluster.kube.create("pods", cluster.namespace, body)


def wait_cached(kube: Kube, operator: Operator) -> None:
    """Waits until the operator, which plans by its cache, knows of every pod and of no other."""

    def cached() -> bool:
        told = f'paceline_operator_cached_objects{{resource="pods"}} {len(kube.list("pods"))}'
        return told in operator.fetch("/metrics").splitlines()

    kube.wait("the operator has cached the pods that there are", cached)


def test_every_plan_binds(
    world: tuple[World, Cluster], operator: Operator, submit: Submit, kube: Kube, namespace: str
) -> None:
    made, cluster = world
    put_foreign_pods(made, cluster)
    running: list[JobHandle] = []
    counts = {"bound": 0, "no room": 0, "asked": 0}
    for number in range(JOBS):
        body = made.job(number)
        total = sum(entry["replicas"] for entry in body["spec"]["roles"])
        wait_cached(kube, operator)
        handle = submit(body)

        def decided(handle: JobHandle = handle, total: int = total) -> str | None:
            placed = handle.condition("Placed")
            if placed["reason"] in NO_ROOM:
                return str(placed["message"])
            assert placed["status"] != "False" or placed["reason"] == "Queued", (SEED, placed)
            # The scheduler may refuse a pod for a moment, as it hears later than the planner that
            # there is room. Where it goes on to refuse, Placed becomes False: BindTimeout.
            verdicts = [cluster.verdict(pod) for pod in handle.pods()]
            return "bound" if len(verdicts) == total and all(verdicts) else None

        said = kube.wait(f"seed {SEED}: {handle.name} is decided", decided, namespace)
        if said == "bound":
            counts["bound"] += 1
            running.append(handle)
        else:
            counts["no room"] += 1
            roles = body["spec"]["roles"]
            cluster.end(handle)
            # The scheduler knows no gangs: several roles may get in each other's way.
            if len(roles) == 1 and not {"topology", "scheduling"} & body["spec"].keys():
                counts["asked"] += 1
                placed = cluster.places(roles[0]["template"]["spec"], total)
                assert placed < total, (
                    f"seed {SEED}: {handle.name} waits ({said}), and the scheduler has room for it"
                )
        if len(running) > 4:
            cluster.end(running.pop(made.dice.randrange(len(running))))
    print(counts)
    assert counts["bound"] >= JOBS // 4 and counts["no room"] >= JOBS // 10, counts
    for handle in running:
        cluster.end(handle)
