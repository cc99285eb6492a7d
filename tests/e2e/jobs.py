# SPDX-License-Identifier: Apache-2.0
"""TrainingJobs for the tests, and questions about them. Most run shell loops: what matters is the
gang.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kube import PATIENCE_SECONDS, Kube, Object

IMAGE = "paceline/busybox:dev"
LAUNCHER_PORT = 29401

# A rank that tells when it started (by the machine's uptime, the same clock in every container) and
# lives until the test says so. /tmp/go ends it well, /tmp/fail badly.
UNTIL_TOLD = """
read up _ </proc/uptime
echo $$ >/tmp/pid.$LOCAL_RANK
trap 'exit 143' TERM
echo "rank $RANK attempt $PACELINE_ATTEMPT started at $up"
while :; do
  [ -e /tmp/go ] && exit 0
  [ -e /tmp/fail ] && { echo "rank $RANK: told to fail"; exit 7; }
  sleep 0.1
done
"""
STARTED = re.compile(r"rank (\d+) attempt (\d+) started at ([0-9.]+)")


# What PACELINE_SETTINGS leaves out: common/contract/pod_defaults.hpp
SETTINGS = {
    "ATTEMPT": "0",
    "BACKOFF": "0s",
    "FRAMEWORK_LAUNCHER": "Paceline",
    "GRACE_PERIOD": "30s",
    "HTTP_LISTEN": "[::]:29401",
    "INCARNATION": "0",
    "RENDEZVOUS_LISTEN": "[::]:29400",
    "RESTARTS": "0",
    "RUNTIME_DIR": "/opt/paceline",
    "STARTUP_TIMEOUT": "10m",
    "STATE_DIR": "/run/paceline",
    "SUCCESS_POLICY": "AllRanks",
    "TERMINATION_LOG": "/dev/termination-log",
}


def settings(pod: Object) -> dict[str, str]:
    """What the operator tells the pod's launcher, by the names that its ranks see."""
    for entry in pod["spec"]["containers"][0]["env"]:
        if entry["name"] == "PACELINE_SETTINGS":
            told: dict[str, str] = {**SETTINGS, **json.loads(entry["value"])}
            return {f"PACELINE_{name}": value for name, value in told.items()}
    raise AssertionError(f"{pod['metadata']['name']} has no PACELINE_SETTINGS")


def trainer(
    script: str, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> Object:
    return {
        "name": "trainer",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        # The kubelet reads $$ as $, and $(NAME) as a variable.
        "command": ["/bin/sh", "-c", script.replace("$", "$$")],
        "resources": {
            "requests": requests or {"cpu": "50m", "memory": "32Mi"},
            "limits": limits or {},
        },
    }


def role(name: str, replicas: int, container: Object, **pod: Any) -> Object:
    spec = {"terminationGracePeriodSeconds": 3, "containers": [container], **pod}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job(
    name: str,
    script: str = "exit 0",
    replicas: int = 2,
    processes: int = 1,
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Custom job of one role, `worker`; further keywords go into the spec."""
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": {"type": "Custom", "processesPerReplica": processes},
            "roles": [role("worker", replicas, trainer(script, requests, limits))],
            "failurePolicy": {"gracePeriod": "2s"},
            **spec,
        },
    }


@dataclass
class JobHandle:
    """One job in the cluster. Reads afresh with every call."""

    kube: Kube
    namespace: str
    name: str

    def read(self) -> Object:
        return self.kube.get("trainingjobs", self.namespace, self.name)

    @property
    def status(self) -> Object:
        return self.read().get("status", {})

    @property
    def phase(self) -> str:
        return self.status.get("phase", "")

    def condition(self, kind: str) -> Object:
        """The condition, or an empty one."""
        found = [c for c in self.status.get("conditions", []) if c["type"] == kind]
        return found[0] if found else {"status": "", "reason": "", "message": ""}

    def pods(self) -> list[Object]:
        """Its pods in node-rank order, those that are going included."""
        pods = self.kube.list("pods", self.namespace, labelSelector=f"paceline.dev/job={self.name}")
        return sorted(
            pods, key=lambda pod: int(pod["metadata"]["labels"]["paceline.dev/node-rank"])
        )

    def pod_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods()]

    def pod_uids(self) -> list[str]:
        return [pod["metadata"]["uid"] for pod in self.pods()]

    def wait_phase(self, *phases: str, timeout: float = PATIENCE_SECONDS) -> Object:
        """Waits for one of the phases; answers the status. A job that ended otherwise fails at
        once.
        """

        def reached() -> Object | None:
            status = self.status
            phase = status.get("phase")
            if phase in phases:
                return status
            ended = phase in ("Succeeded", "Failed")
            assert not ended, (
                f"{self.name} is {phase}, not {phases}\n{self.kube.describe(self.namespace)}"
            )
            return None

        result = self.kube.wait(f"{self.name} is one of {phases}", reached, self.namespace, timeout)
        assert result
        return result

    def wait_condition(
        self, kind: str, status: str, reason: str = "", timeout: float = PATIENCE_SECONDS
    ) -> Object:
        def reached() -> Object | None:
            condition = self.condition(kind)
            fits = condition["status"] == status and (not reason or condition["reason"] == reason)
            return condition if fits else None

        result = self.kube.wait(
            f"{self.name} has {kind}={status} {reason}", reached, self.namespace, timeout
        )
        assert result
        return result

    def start_times(self, attempt: int | None) -> dict[int, float]:
        """When each rank of an attempt (None: any) said it started, by uptime, from the logs of the
        present pods.
        """
        times: dict[int, float] = {}
        for name in self.pod_names():
            for rank, number, uptime in STARTED.findall(self.kube.logs(self.namespace, name)):
                if attempt is None or int(number) == attempt:
                    times[int(rank)] = float(uptime)
        return times

    def wait_started(
        self, attempt: int | None, ranks: int, timeout: float = PATIENCE_SECONDS
    ) -> dict[int, float]:
        """Waits until every rank of an attempt has started."""

        def reached() -> dict[int, float] | None:
            times = self.start_times(attempt)
            return times if len(times) == ranks else None

        what = f"{ranks} ranks of {self.name} started in attempt {attempt}"
        result = self.kube.wait(what, reached, self.namespace, timeout, poll=0.3)
        assert result
        return result

    def tell(self, file: str = "go") -> None:
        """Writes the file that the shell loops look for into every pod that has not ended.

        A container's log can be read before the kubelet has reported its pod as running: such a pod
        is waited for.
        """
        told: set[str] = set()

        def all_told() -> bool:
            waiting = False
            for pod in self.pods():
                if "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") in (
                    "Succeeded",
                    "Failed",
                ):
                    continue
                statuses = pod["status"].get("containerStatuses") or [{}]
                trainer = statuses[0].get("state", {})
                uid = pod["metadata"]["uid"]
                if "running" in trainer and uid not in told:
                    self.kube.execute(self.namespace, pod["metadata"]["name"], f": >/tmp/{file}")
                    told.add(uid)
                waiting |= not ({"running", "terminated"} & trainer.keys())
            return not waiting

        self.kube.wait(f"all pods of {self.name} are told to {file}", all_told, self.namespace)

    def delete(self) -> None:
        self.kube.delete("trainingjobs", self.namespace, self.name, propagationPolicy="Background")


@contextmanager
def own_namespace(kube: Kube, name: str) -> Iterator[str]:
    """A namespace of its own. It goes when the test ends; the next test does not wait for that, but
    needs the room.
    """
    kube.create("namespaces", "", {"metadata": {"name": name}})
    kube.wait(
        "the default service account", lambda: kube.find("serviceaccounts", name, "default"), name
    )
    yield name
    for item in kube.list("trainingjobs", name):
        kube.delete("trainingjobs", name, item["metadata"]["name"], propagationPolicy="Background")
    kube.delete("namespaces", "", name)
    kube.wait(f"no pod is left in {name}", lambda: not kube.list("pods", name), name)
