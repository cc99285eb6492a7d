# SPDX-License-Identifier: Apache-2.0
"""What each property of a TrainingJob's spec does: two good values, when it may change, and where
its effect shows. The tests fail if the schema has a property that this table lacks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobs import job, settings
from kube import Object, Objects
from schemas import ELEMENT, KEY, VALUE, merged

GPUS = {"nvidia.com/gpu": "1"}
LOSSY = {"acceleration": {"numerics": "Lossy", "communication": "Auto"}}
WITH_GPU = {"roles": [{"template": {"spec": {"containers": [{"resources": {"limits": GPUS}}]}}}]}
# Where the API server's rules let a property change.
SUSPENDED, ALWAYS, NEVER = "suspended", "always", "never"


@dataclass
class Shown:
    """What the operator has made of a job: its live pods in node-rank order, and its status."""

    pods: Objects
    status: Object


Look = Callable[[Shown], Any]


def setting(name: str) -> Look:
    """A setting of rank 0's launcher."""
    return lambda shown: settings(shown.pods[0]).get(f"PACELINE_{name}")


def container(key: str) -> Look:
    return lambda shown: shown.pods[0]["spec"]["containers"][0][key]


def resource(section: str) -> Look:
    """The container's limit or request of CPU."""
    return lambda shown: container("resources")(shown).get(section, {}).get("cpu")


def told(key: str) -> Look:
    """A field of status.acceleration."""
    return lambda shown: shown.status.get("acceleration", {}).get(key)


def pin_of(pod: Object) -> str:
    """The node that the operator has chosen for the pod."""
    required = pod["spec"]["affinity"]["nodeAffinity"]
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][-1]["values"][0])


def nodes_used(shown: Shown) -> int:
    """On how many nodes the pods are pinned."""
    return len({pin_of(pod) for pod in shown.pods})


@dataclass(frozen=True)
class Case:
    """`look` answers `seen` for the values a, b, and no value. Without `look`, the effect takes
    time, and the function `test` of test_effects.py shows it.
    """

    a: Any
    b: Any
    changes: str = SUSPENDED
    look: Look | None = None
    seen: tuple[Any, Any] = ()  # type: ignore[assignment]
    test: str = ""
    needs: Object = field(default_factory=dict)  # laid over the spec
    key: str = KEY  # of a map
    required: bool = False  # cannot be removed, or removing it leaves a

    def document(self, path: tuple[str, ...], value: Any) -> Object:
        """The spec of a good job with the value at `path`; an absent one for None."""
        spec: Object = copy.deepcopy(merged(BASE["spec"], self.needs))
        place: Any = spec
        for part, following in zip(path, (*path[1:], None), strict=True):
            key: Any = 0 if part == ELEMENT else self.key if part == VALUE else part
            if following is None:
                if value is not None:
                    place[key] = value
                elif key in place:
                    del place[key]
            else:
                empty: Any = [] if following == ELEMENT else {}
                place = place[key] if part == ELEMENT else place.setdefault(key, empty)
        return spec


BASE = job("base", replicas=2, processes=1)
BASE["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = ["train", "--fast"]
TEMPLATE = "roles[].template"
CONTAINER = f"{TEMPLATE}.spec.containers[]"


def more_roles(*names: str) -> Object:
    """The job with further roles like its own."""
    own: Object = BASE["spec"]["roles"][0]
    return {"roles": [{}, *({**own, "name": name, "replicas": 1} for name in names)]}


LATER = more_roles("second", "third")
LATER["roles"][2]["startAfter"] = "second"

CASES: dict[str, Case] = {
    "framework.type": Case(
        "Custom", "PyTorch", look=setting("FRAMEWORK"), seen=("Custom", "PyTorch"), required=True
    ),
    "framework.processesPerReplica": Case(
        2, "Auto", look=setting("PROCESSES_PER_REPLICA"), seen=("2", "1")
    ),
    "framework.launcher": Case(
        "Passthrough",
        "Paceline",
        look=setting("FRAMEWORK_LAUNCHER"),
        seen=("Passthrough", "Paceline"),
    ),
    "roles[].name": Case(
        "worker", "other", look=setting("ROLE"), seen=("worker", "other"), required=True
    ),
    "roles[].replicas": Case(1, 3, look=lambda s: len(s.pods), seen=(1, 3), required=True),
    "roles[].kind": Case(
        "Coordinator", "Worker", look=setting("ROLE_KIND"), seen=("Coordinator", None)
    ),
    "roles[].processes": Case(2, 3, look=setting("PROCESSES_PER_REPLICA"), seen=("2", "3")),
    "roles[].startAfter": Case(
        "second", "third", look=setting("START_STAGE"), seen=("1", "2"), needs=LATER
    ),
    f"{TEMPLATE}.metadata.labels{{}}": Case(
        "a", "b", look=lambda s: s.pods[0]["metadata"]["labels"].get("example"), seen=("a", "b")
    ),
    f"{TEMPLATE}.metadata.annotations{{}}": Case(
        "a",
        "b",
        look=lambda s: s.pods[0]["metadata"].get("annotations", {}).get("example"),
        seen=("a", "b"),
    ),
    f"{CONTAINER}.name": Case(
        "trainer", "other", look=container("name"), seen=("trainer", "other"), required=True
    ),
    f"{CONTAINER}.image": Case(
        "a:1", "b:2", look=container("image"), seen=("a:1", "b:2"), required=True
    ),
    f"{CONTAINER}.command[]": Case(
        "train",
        "learn",
        look=lambda s: container("command")(s)[3],
        seen=("train", "learn"),
        required=True,
    ),
    f"{CONTAINER}.args[]": Case(
        "one",
        "two",
        look=lambda s: container("args")(s)[0],
        seen=("one", "two"),
        needs={"roles": [{"template": {"spec": {"containers": [{"args": ["zero"]}]}}}]},
        required=True,
    ),
    f"{CONTAINER}.resources.limits{{}}": Case(
        "1", "2", look=resource("limits"), seen=("1", "2"), key="cpu"
    ),
    f"{CONTAINER}.resources.requests{{}}": Case(
        "1", "2", look=resource("requests"), seen=("1", "2"), key="cpu"
    ),
    "scheduling.queue": Case("left", "right", test="test_queue_decides_who_is_next"),
    "scheduling.priorityClassName": Case(
        "low",
        "high",
        look=lambda s: s.pods[0]["spec"].get("priorityClassName"),
        seen=("low", "high"),
    ),
    "scheduling.gangTimeout": Case("1s", "10m", test="test_gang_timeout_takes_the_set_back"),
    "scheduling.exclusiveNodes": Case(True, False, look=nodes_used, seen=(2, 1)),
    "failurePolicy.maxRestarts": Case(7, 0, look=setting("MAX_RESTARTS"), seen=("7", "0")),
    "failurePolicy.backoff": Case("5s", "100ms", look=setting("BACKOFF"), seen=("5s", "100ms")),
    "failurePolicy.gracePeriod": Case("7s", "1m", look=setting("GRACE_PERIOD"), seen=("7s", "60s")),
    "failurePolicy.forceDeleteAfter": Case("1s", "1h", test="test_lost_node_is_left"),
    "acceleration.profileRef": Case(
        "quick", "exact", look=told("profile"), seen=("quick", "exact")
    ),
    "acceleration.mode": Case("Auto", "Disabled", look=told("loader"), seen=("Auto", None)),
    "acceleration.numerics": Case(
        "Lossy", "Bitwise", look=told("numerics"), seen=("Lossy", "Bitwise")
    ),
    "acceleration.loader": Case("Disabled", "Auto", look=told("loader"), seen=("Disabled", "Auto")),
    "acceleration.optimizer": Case(
        "Disabled", "Auto", look=told("optimizer"), seen=("Disabled", "Auto")
    ),
    "acceleration.communication": Case(
        "Disabled", "Auto", look=told("communication"), seen=("Disabled", "Auto")
    ),
    "acceleration.compression": Case(
        "Int8",
        "TopK:ratio=0.01",
        look=told("compression"),
        seen=("Int8", "TopK:ratio=0.01"),
        needs=LOSSY,
    ),
    "acceleration.precision": Case(
        "TF32", "O1", look=told("precision"), seen=("TF32", "O1"), needs=LOSSY
    ),
    "acceleration.cudaGraph": Case(
        "Disabled", "Auto", look=told("cudaGraph"), seen=("Disabled", None)
    ),
    "acceleration.loaderWorkers": Case(
        "Disabled", "4", look=told("loaderWorkers"), seen=("Disabled", "4")
    ),
    "acceleration.compile": Case(
        "Disabled", "Auto", look=told("compile"), seen=("Disabled", "Auto")
    ),
    "network.gpuDirect": Case(
        "Preferred",
        "Disabled",
        look=setting("GPU_DIRECT"),
        seen=("Preferred", "Disabled"),
        needs=WITH_GPU,
    ),
    "successPolicy": Case(
        "RankZero", "AllRanks", look=setting("SUCCESS_POLICY"), seen=("RankZero", "AllRanks")
    ),
    "suspend": Case(True, False, changes=ALWAYS, test="test_suspended_job_has_no_pods"),
    "activeDeadline": Case("1s", "1h", changes=ALWAYS, test="test_deadline_ends_a_running_job"),
    "ttlAfterFinished": Case("1s", "1h", changes=ALWAYS, test="test_end_cleans_up_and_forgets"),
    "cleanPodPolicy": Case("All", "None", changes=ALWAYS, test="test_end_cleans_up_and_forgets"),
    "managedBy": Case(
        "paceline.dev/operator",
        "nobody.example/else",
        changes=NEVER,
        test="test_job_of_another_manager_is_left_alone",
        required=True,
    ),
}
