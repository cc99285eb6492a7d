# SPDX-License-Identifier: Apache-2.0
"""The operator dies before and after every write that it sends for a job, and the job does not notice: same end state,
same creates and deletes as in a run without a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import JobHandle, job
from kube import Kube, Object
from testbed import Operator

CRASHED = 87  # the exit code of a fail point
KINDS = ("pods", "services", "secrets", "configmaps")


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
        self.since = {kind: kube.listing(kind, namespace)["metadata"]["resourceVersion"] for kind in KINDS}
        kube.create("trainingjobs", namespace, job(name, "exit 0", replicas=2, cleanPodPolicy="All"))
        self.handle = JobHandle(kube, namespace, name)

    def finished(self) -> bool:
        """It succeeded and its pods are cleaned up."""
        return self.handle.phase in ("Succeeded", "Failed") and not self.handle.pods()

    def end_state(self) -> Object:
        status = self.handle.status
        conditions = sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"])
        kept = {key: status.get(key) for key in ("phase", "restarts", "attempt", "reason", "message", "roles")}
        return {**kept, "conditions": conditions}

    def changes(self) -> Counter[tuple[str, str, str]]:
        """How often each object was created and deleted, by name; a second create has another UID, so it counts."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for kind in KINDS:
            for event in self.kube.history(kind, self.namespace, self.since[kind]):
                name = event["object"]["metadata"]["name"]
                if event["type"] in ("ADDED", "DELETED") and name.startswith(self.name):
                    counts[(event["type"], kind, name.replace(self.name, "JOB", 1))] += 1
        return counts


def run_life(kube: Kube, operator: Operator, namespace: str, name: str, env: dict[str, str]) -> tuple[Life, bool]:
    """One life under an operator with a fail point; when it has fired, one without takes over. Tells whether it did."""
    operator.start(env)
    life = Life(kube, namespace, name)
    crashed = False

    def over() -> bool:
        nonlocal crashed
        code = operator.exit_code()
        if code is not None:
            assert code == CRASHED and not crashed, f"the operator ended with {code}\n{operator.tail()}"
            crashed = True
            operator.start()
        return life.finished()

    kube.wait(f"{name} has ended and is cleaned up", over, 60, namespace)
    operator.stop()
    return life, crashed


def test_every_write(kube: Kube, armed: Operator, namespace: str, tmp_path: Path) -> None:
    counted = tmp_path / "writes"
    reference, _ = run_life(kube, armed, namespace, "reference", {"PACELINE_FAILPOINT_COUNT_FILE": str(counted)})
    writes = int(counted.read_text())
    expected, changes = reference.end_state(), reference.changes()
    assert expected["phase"] == "Succeeded"
    assert writes >= 8, f"only {writes} writes were counted"
    assert set(changes.values()) == {1}, changes
    fired = 0
    for number in range(1, writes + 1):
        for place in ("before", "after"):
            name = f"w{number}-{place}"
            life, crashed = run_life(kube, armed, namespace, name, {"PACELINE_FAILPOINT": f"{number}:{place}"})
            fired += crashed
            state = life.end_state()
            assert state == {**expected, "message": state["message"]}, f"{name}: {state}\n{expected}"
            assert life.changes() == changes, f"{name}: {life.changes() - changes} {changes - life.changes()}"
            kube.delete("trainingjobs", namespace, name, propagationPolicy="Background")
    print(f"{writes} writes, {fired} crashes")
    # Writes of status differ a little from run to run (what is seen at once is written at once); most points must fire.
    assert fired >= 2 * writes - 6
