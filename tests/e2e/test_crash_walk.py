# SPDX-License-Identifier: Apache-2.0
"""The operator dies before and after every write that it sends for a job, and the job does not
notice: same end state, same creates and deletes as in a run without a crash.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jobs import JobHandle, job
from kube import Kube, Object
from testbed import Operator

CRASHED = 87  # the exit code of a fail point
KINDS = ("pods", "services", "secrets")
LEAST_WRITES = 8  # of a life


@pytest.fixture
def armed(operator: Operator) -> Iterator[Operator]:
    """The operator, ended; afterwards it runs again without fail point."""
    operator.stop()
    yield operator
    operator.stop()
    operator.start()
    operator.wait_ready()


class Life:
    """One job from its creation to its clean end, and what was created and deleted on the way."""

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self.kube, self.namespace, self.name = kube, namespace, name
        self.since = {
            kind: kube.listing(kind, namespace)["metadata"]["resourceVersion"] for kind in KINDS
        }
        kube.create(
            "trainingjobs", namespace, job(name, "exit 0", replicas=2, cleanPodPolicy="All")
        )
        self.handle = JobHandle(kube, namespace, name)

    def finished(self) -> bool:
        """It succeeded and its pods are cleaned up."""
        return self.handle.phase in ("Succeeded", "Failed") and not self.handle.pods()

    def end_state(self) -> Object:
        status = self.handle.status
        conditions = sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"])
        kept = {
            key: status.get(key)
            for key in ("phase", "restarts", "attempt", "reason", "message", "roles")
        }
        return {**kept, "conditions": conditions}

    def _history(self, kind: str) -> list[Object]:
        return self.kube.again().history(kind, self.namespace, self.since[kind])

    def changes(self) -> Counter[tuple[str, str, str]]:
        """How often each object was created and deleted, by name; a second create has another UID,
        so it counts.
        """
        counts: Counter[tuple[str, str, str]] = Counter()
        with ThreadPoolExecutor(len(KINDS)) as threads:
            histories = list(threads.map(self._history, KINDS))
        for kind, events in zip(KINDS, histories, strict=True):
            for event in events:
                name = event["object"]["metadata"]["name"]
                if event["type"] in ("ADDED", "DELETED") and name.startswith(self.name):
                    # The name of a Secret carries a part of the job's UID.
                    own = re.sub(r"-[0-9a-f]+$", "-UID", name) if kind == "secrets" else name
                    counts[(event["type"], kind, own.replace(self.name, "JOB", 1))] += 1
        return counts


def run_life(
    kube: Kube, operator: Operator, namespace: str, name: str, *deaths: dict[str, str]
) -> tuple[Life, int]:
    """One life under operators of which each dies at its fail point, and then one that does not.
    Answers how many did.
    """
    plan = [*deaths, {}]
    operator.start(plan[0])
    life = Life(kube, namespace, name)
    died = 0

    def over() -> bool:
        nonlocal died
        code = operator.exit_code()
        if code is not None:
            assert code == CRASHED and died < len(deaths), (
                f"the operator ended with {code}\n{operator.tail()}"
            )
            died += 1
            operator.start(plan[died])
        return life.finished()

    kube.wait(f"{name} has ended and is cleaned up", over, namespace)
    if operator.stop() == CRASHED:  # after the last look
        died += 1
    return life, died


def test_every_write(kube: Kube, armed: Operator, namespace: str, tmp_path: Path) -> None:
    """One life for each write: the first operator dies before it, the second right after the first
    write it sends, which is that one or a repetition; the third ends the job.
    """
    counted = tmp_path / "writes"
    armed.start({"PACELINE_FAILPOINT_COUNT_FILE": str(counted)})
    reference = Life(kube, namespace, "reference")
    kube.wait("the reference has ended and is cleaned up", reference.finished, namespace)
    armed.stop()
    writes = int(counted.read_text())
    expected, changes = reference.end_state(), reference.changes()
    assert expected["phase"] == "Succeeded"
    assert writes >= LEAST_WRITES, f"only {writes} writes were counted"
    assert set(changes.values()) == {1}, changes
    crashes = 0
    for number in range(1, writes + 1):
        name = f"write-{number}"
        own = tmp_path / name
        before = {"PACELINE_FAILPOINT": f"{number}:before"}
        before["PACELINE_FAILPOINT_COUNT_FILE"] = str(own)
        deaths = (before, {"PACELINE_FAILPOINT": "1:after"})
        life, died = run_life(kube, armed, namespace, name, *deaths)
        assert died or int(own.read_text()) < number, f"{name}: its fail point did not fire"
        crashes += died
        state = life.end_state()
        assert state == {**expected, "message": state["message"]}, f"{name}: {state}\n{expected}"
        assert life.changes() == changes, (
            f"{name}: {life.changes() - changes} {changes - life.changes()}"
        )
        kube.delete("trainingjobs", namespace, name, propagationPolicy="Background")
    print(f"{writes} writes, {crashes} crashes")
    # What is seen at once is written at once: lives on a busy machine have a few writes fewer.
    assert crashes >= 2 * LEAST_WRITES
