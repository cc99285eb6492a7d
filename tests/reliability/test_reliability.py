# SPDX-License-Identifier: Apache-2.0
"""Each part of the cluster is killed while one job trains and another waits for its room; a third
is submitted at that moment. `make reliability` writes docs/operate/reliability.md from it.
"""

from __future__ import annotations

import functools
import http.client
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import parts
import pytest
from kube import ApiError, Kube, Object
from outcomes import Measured, Outcome
from parts import AGENTS, SYSTEM, Renewed
from sampler import Sampler
from testbed import Cluster
from training import Training, prepare, uptime

OUTAGE_SECONDS = 20.0  # longer than an operator keeps its Lease without the API server
PATIENCE_SECONDS = 120.0
QUICK_SECONDS = 3.0  # for one request, so that an outage's end is seen soon
UNDER_WAY_SECONDS = 3.0


@dataclass
class Scene:
    """What a case finds: a job that trains, with its pods in node-rank order."""

    kube: Kube
    cluster: Cluster
    pods: list[Object]

    @property
    def node(self) -> str:
        """The node of rank 1."""
        return self.pods[1]["spec"]["nodeName"]


@dataclass
class Blow:
    """A kill that is prepared: how it is done, and how the part comes back."""

    strike: Callable[[], Any]
    renewed: Renewed | None = None
    away: float = 0.0
    restore: Callable[[], Any] = lambda: None


@dataclass(frozen=True)
class Case:
    name: str
    killed: str
    make: Callable[[Scene], Blow]
    operators: int = 2
    attempts: int = 0
    replaced: int = 0
    restarts: int = 0
    disruptions: int = 0
    spares: int = 0


def lease_of_operator(scene: Scene) -> Renewed:
    return parts.renewals(scene.kube, SYSTEM, "paceline-operator")


def nothing(_: Scene) -> Blow:
    return Blow(lambda: None)


def operator(scene: Scene) -> Blow:
    pid = parts.container(scene.cluster, parts.leader(scene.kube))
    return Blow(lambda: parts.kill(pid), lease_of_operator(scene))


def leader_hangs(scene: Scene) -> Blow:
    """The other takes over; the one that wakes must not act any more."""
    pid = parts.container(scene.cluster, parts.leader(scene.kube))
    return Blow(
        lambda: os.kill(pid, signal.SIGSTOP),
        lease_of_operator(scene),
        OUTAGE_SECONDS,
        lambda: os.kill(pid, signal.SIGCONT),
    )


def apiserver(scene: Scene) -> Blow:
    pid = parts.daemon("kube-apiserver")
    return Blow(
        lambda: parts.kill(pid),
        lease_of_operator(scene),
        OUTAGE_SECONDS,
        lambda: scene.cluster.call("start-apiserver"),
    )


def etcd(scene: Scene) -> Blow:
    pid = parts.daemon("etcd")
    return Blow(
        lambda: parts.kill(pid),
        lease_of_operator(scene),
        OUTAGE_SECONDS,
        lambda: scene.cluster.call("start-etcd"),
    )


def kubelet(scene: Scene) -> Blow:
    node = scene.node

    def restart() -> None:
        parts.kill(parts.daemon(f"{node}-kubelet"))
        scene.cluster.call("restart-kubelet", node)

    return Blow(restart, parts.renewals(scene.kube, "kube-node-lease", node))


def agent(scene: Scene) -> Blow:
    node = scene.node
    pid = parts.container(scene.cluster, parts.agent_on(scene.kube, node))
    lease = f"paceline-agent-{node}"
    return Blow(lambda: parts.kill(pid), parts.renewals(scene.kube, AGENTS, lease))


def node(scene: Scene) -> Blow:
    """It stays away until the job trains elsewhere."""
    name = scene.node
    return Blow(
        lambda: scene.cluster.call("kill-node", name),
        None,
        3 * OUTAGE_SECONDS,
        lambda: scene.cluster.call("start-node", name),
    )


def launcher(scene: Scene) -> Blow:
    pid = parts.container(scene.cluster, scene.pods[1])
    return Blow(lambda: parts.kill(pid))


def rank(scene: Scene) -> Blow:
    pid = parts.rank_of(parts.container(scene.cluster, scene.pods[1]), 1)
    return Blow(lambda: parts.kill(pid))


CASES = [
    Case("nothing", "nothing", nothing),
    Case("operator", "the only operator", operator, operators=1),
    Case("leader", "the leader of two operators", operator),
    Case("leader-hangs", "the leader of two operators hangs (SIGSTOP)", leader_hangs),
    Case("apiserver", "kube-apiserver", apiserver),
    Case("etcd", "etcd", etcd),
    Case("kubelet", "a kubelet", kubelet),
    Case("agent", "an agent", agent),
    Case("node", "a node", node, attempts=1, replaced=1, disruptions=1),
    Case(
        "node-with-spare",
        "a node, with a spare",
        node,
        attempts=1,
        replaced=1,
        disruptions=1,
        spares=1,
    ),
    Case("launcher", "a launcher", launcher, attempts=1, replaced=1, restarts=1),
    Case("rank", "a rank", rank, attempts=1, restarts=1),
]


def attempt(what: Callable[[], Any]) -> Any:
    """None while the API server does not answer."""
    try:
        return what()
    except (OSError, http.client.HTTPException):
        return None
    except ApiError as error:
        if error.code not in (403, 409, 429, 500, 503, 504):  # 403: its rules are not loaded yet
            raise
        return None


class Recovery:
    """What follows the kill, by the machine's uptime."""

    def __init__(self, kube: Kube, namespace: str, blow: Blow, job: Training) -> None:
        self._kube, self._namespace, self._job = kube, namespace, job
        self._new, self._body = prepare(kube, namespace, "new", 1, {"cpu": "50m", "memory": "32Mi"})
        self._created = False
        self.blow = blow
        self.killed_at = self.new_job_at = self.back_at = 0.0

    def watch(self, attempts: int) -> None:
        """Kills, and returns when all runs again."""
        renewed = self.blow.renewed
        before = renewed() if renewed else ""
        self.killed_at = uptime()
        self.blow.strike()
        with ThreadPoolExecutor(1) as beside:
            # Beside the requests below, which may take long meanwhile.
            restored = beside.submit(self._restore)
            deadline = time.monotonic() + PATIENCE_SECONDS + self.blow.away
            while not self._all_is_well(before, attempts):
                assert time.monotonic() < deadline, self._missing()
                time.sleep(0.1)
            restored.result()
        self._new.end()

    def _restore(self) -> None:
        time.sleep(max(0.0, self.killed_at + self.blow.away - uptime()))
        self.blow.restore()

    def _all_is_well(self, before: str, attempts: int) -> bool:
        self._created = self._created or self._create()
        if not self.new_job_at and self._new.steps(0):
            self.new_job_at = self._new.first_step()
        if self.blow.renewed and not self.back_at:
            now = attempt(self.blow.renewed)
            self.back_at = uptime() if now and now != before else 0.0
        back = self.blow.renewed is None or self.back_at > 0
        last = [self._job.steps(rank)[-1].attempt for rank in range(self._job.ranks)]
        trains = self._job.all_step_since(self.killed_at) and min(last) >= attempts
        return self.new_job_at > 0 and back and trains

    def _create(self) -> bool:
        """The answer to an earlier try may have been lost."""
        ask = functools.partial(self._kube.find, "trainingjobs", self._namespace, "new")
        make = functools.partial(self._kube.create, "trainingjobs", self._namespace, self._body)
        return attempt(lambda: ask() or make()) is not None

    def _missing(self) -> str:
        steps = [self._job.steps(rank)[-1:] for rank in range(self._job.ranks)]
        return (
            f"not within {PATIENCE_SECONDS:g} s: killed at {self.killed_at:.1f}, new job created:"
            f" {self._created}, trains at {self.new_job_at:.1f}, part back at {self.back_at:.1f},"
            f" last steps {steps}\n{self._kube.describe(self._namespace)}"
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jobs_survive(
    case: Case,
    kube: Kube,
    cluster: Cluster,
    operators: Callable[[int], None],
    namespace: str,
    record: Measured,
) -> None:
    operators(case.operators)
    smallest = min(float(item["status"]["allocatable"]["cpu"]) for item in kube.list("nodes"))
    large = {"cpu": f"{int(smallest * 550)}m", "memory": "32Mi"}
    running, body = prepare(kube, namespace, "running", 2, large, case.spares)
    queued, later = prepare(kube, namespace, "queued", 2, large)
    kube.create("trainingjobs", namespace, body)
    running.wait_trains(0)
    running.handle.wait_phase("Running")
    kube.create("trainingjobs", namespace, later)
    queued.handle.wait_condition("Placed", "False", "WaitingForRoom")
    time.sleep(UNDER_WAY_SECONDS)
    quick = kube.again()
    quick.timeout_s = QUICK_SECONDS
    scene = Scene(quick, cluster, running.handle.pods())
    recovery = Recovery(quick, namespace, case.make(scene), running)
    with Sampler(quick, namespace, "queued") as sampler:
        recovery.watch(case.attempts)
        kube.wait(
            "status tells that the job runs",
            lambda: running.handle.phase == "Running" and settled(running, case),
            namespace,
        )
        sampler.waits = False
        running.end()
        status = running.handle.wait_phase("Succeeded")
        queued.wait_trains(0)
        queued.end()
        queued.handle.wait_phase("Succeeded")
    assert sampler.looks > 10 and not sampler.faults, sampler.faults
    outcome = told(case, recovery, running, status)
    print(outcome)
    assert (outcome.restarts, outcome.disruptions) == (case.restarts, case.disruptions), status
    assert outcome.replaced == case.replaced, status
    assert (outcome.attempts > 0) == (case.attempts > 0), status
    record.cases.append(outcome)


def settled(running: Training, case: Case) -> bool:
    """A restart in place is counted when the operator has next read the launcher's summary."""
    status = running.handle.status
    replaced = sum(status["roles"][0]["incarnations"])
    return status.get("attempt", 0) >= case.attempts and replaced == case.replaced


def told(case: Case, recovery: Recovery, running: Training, status: Object) -> Outcome:
    killed_at = recovery.killed_at
    return Outcome(
        case=case.name,
        killed=case.killed,
        away=recovery.blow.away,
        stood_still=round(running.stood_still(killed_at), 2),
        attempts=status["attempt"],
        replaced=sum(status["roles"][0]["incarnations"]),
        restarts=status["restarts"],
        disruptions=status.get("disruptions", 0),
        repeated=running.repeated(),
        new_job_after=round(recovery.new_job_at - killed_at, 2),
        back_after=round(recovery.back_at - killed_at, 2) if recovery.back_at else None,
        spares=case.spares,
    )


def test_standby_costs_little(
    kube: Kube, cluster: Cluster, operators: Callable[[int], None], record: Measured
) -> None:
    operators(2)
    leads = parts.leader(kube)["metadata"]["name"]
    pods = kube.list("pods", SYSTEM, labelSelector="app.kubernetes.io/component=operator")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2, "both are on one node"
    for pod in pods:
        part = "leader" if pod["metadata"]["name"] == leads else "standby"
        record.memory[part] = round(parts.memory(parts.container(cluster, pod)), 1)
    assert record.memory["standby"] < min(32, record.memory["leader"]), record.memory
