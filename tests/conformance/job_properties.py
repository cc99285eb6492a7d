# SPDX-License-Identifier: Apache-2.0
"""What each property of a TrainingJob's spec does: two good values, when it may change, and where
its effect shows. The tests fail if the schema has a property that this table lacks.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobs import job, settings
from kube import Object, Objects
from schemas import ELEMENT, KEY, VALUE, merged

GPUS = {"nvidia.com/gpu": "1"}
COMPRESSION = "COMMUNICATION_COMPRESSION"
LOSSY = {"acceleration": {"numerics": "Lossy", "communication": "Auto"}}
WITH_GPU = {"roles": [{"template": {"spec": {"containers": [{"resources": {"limits": GPUS}}]}}}]}
# Where the API server's rules let a property change.
SUSPENDED, QUEUED, ALWAYS, NEVER = "suspended", "queued", "always", "never"


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
        return with_elastic(spec)


def with_elastic(spec: Object) -> Object:
    """The spec with replicas in each role, but in the one that is elastic."""
    if "elastic" not in spec:
        return spec
    roles = []
    for role in spec["roles"]:
        own = {key: value for key, value in role.items() if key != "replicas"}
        if role["name"] != spec["elastic"]["role"]:
            own["replicas"] = role.get("replicas", 1)
        roles.append(own)
    return {**spec, "roles": roles}


BASE = job("base", replicas=2, processes=1)
BASE["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = ["train", "--fast"]
TEMPLATE = "roles[].template"
CONTAINER = f"{TEMPLATE}.spec.containers[]"


def more_roles(*names: str) -> Object:
    """The job with further roles like its own."""
    own: Object = BASE["spec"]["roles"][0]
    return {"roles": [{}, *({**own, "name": name, "replicas": 1} for name in names)]}


def rule(key: str) -> Look:
    """A field of the first failure rule, as rank 0's launcher gets it."""
    return lambda shown: json.loads(settings(shown.pods[0])["PACELINE_FAILURE_RULES"])[0][key]


def with_rule(**fields: Any) -> Object:
    return {"failurePolicy": {"rules": [{"action": "FailJob", **fields}]}}


def condition_cases(key: str) -> dict[str, Case]:
    """The cases of a rule's conditions, which the launcher gets as lists of texts."""

    def look(place: int) -> Look:
        return lambda shown: rule(key)(shown)[0][place]

    path, needs = f"failurePolicy.rules[].{key}[]", with_rule(**{key: [{"type": "A"}]})
    return {
        f"{path}.type": Case(
            "A", "B", changes=QUEUED, look=look(0), seen=("A", "B"), needs=needs, required=True
        ),
        f"{path}.status": Case(
            "False", "Unknown", changes=QUEUED, look=look(1), seen=("False", "Unknown"), needs=needs
        ),
        f"{path}.reason": Case(
            "C", "D", changes=QUEUED, look=look(2), seen=("C", "D"), needs=needs
        ),
    }


def compression_cases(way: str, field: str, a: Any, b: Any, *seen: str) -> dict[str, Case]:
    """A setting of one way to compress, which rank 0's launcher gets as a text."""
    needs = {"acceleration": {**LOSSY["acceleration"], "compression": {way: {}}}}
    path = f"acceleration.compression.{way}.{field}"
    return {path: Case(a, b, look=setting(COMPRESSION), seen=(seen[0], seen[1]), needs=needs)}


def pods_of(role: str) -> Look:
    """How many pods the role has."""
    return lambda shown: sum(
        pod["metadata"]["labels"]["paceline.dev/role"] == role for pod in shown.pods
    )


ELASTIC = {
    **more_roles("second"),
    "elastic": {"role": "worker", "replicas": 3, "minReplicas": 1, "maxReplicas": 4},
}
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
    "elastic.role": Case(
        "worker", "second", look=pods_of("worker"), seen=(3, 2), needs=ELASTIC, required=True
    ),
    "elastic.replicas": Case(
        2,
        3,
        changes=ALWAYS,
        look=pods_of("worker"),
        seen=(2, 3),
        needs=ELASTIC,
        required=True,
    ),
    "elastic.minReplicas": Case(
        1, 2, test="test_elastic_job_starts_within_its_bounds", needs=ELASTIC, required=True
    ),
    "elastic.maxReplicas": Case(
        3, 4, test="test_elastic_job_starts_within_its_bounds", needs=ELASTIC, required=True
    ),
    "scheduling.queue": Case(
        "left", "right", changes=QUEUED, test="test_queue_decides_who_is_next"
    ),
    "scheduling.priorityClassName": Case(
        "low",
        "high",
        changes=QUEUED,
        look=lambda s: s.pods[0]["spec"].get("priorityClassName"),
        seen=("low", "high"),
    ),
    "scheduling.gangTimeout": Case(
        "1s", "10m", changes=ALWAYS, test="test_gang_timeout_takes_the_set_back"
    ),
    "scheduling.podsPerNode": Case(1, 2, look=nodes_used, seen=(2, 1)),
    "scheduling.provision": Case(
        "Placeholders", "Disabled", test="test_waiting_job_asks_for_nodes"
    ),
    "scheduling.backend": Case(
        "PodGroup", "Native", test="test_backend_says_who_chooses_the_nodes"
    ),
    "topology.required": Case("Leaf", "Zone", test="test_required_leaf_is_waited_for"),
    "topology.preferred": Case(
        "Leaf", "Zone", changes=ALWAYS, test="test_preferred_leaf_is_waited_for_within_a_limit"
    ),
    "topology.preferredTimeout": Case(
        "1h",
        "1s",
        changes=ALWAYS,
        test="test_preferred_leaf_is_waited_for_within_a_limit",
        needs={"topology": {"preferred": "Leaf"}},
    ),
    "failurePolicy.maxRestarts": Case(
        7, 0, changes=QUEUED, look=setting("MAX_RESTARTS"), seen=("7", "0")
    ),
    "failurePolicy.maxDisruptions": Case(
        0, 5, changes=ALWAYS, test="test_disruptions_have_a_bound"
    ),
    "failurePolicy.spares": Case(
        1, 2, look=setting("SPARES"), seen=("1", "2"), needs=more_roles("second")
    ),
    "failurePolicy.rules[].name": Case(
        "one", "two", changes=QUEUED, look=rule("name"), seen=("one", "two"), needs=with_rule()
    ),
    "failurePolicy.rules[].action": Case(
        "FailJob",
        "Ignore",
        changes=QUEUED,
        look=rule("action"),
        seen=("FailJob", "Ignore"),
        needs=with_rule(),
        required=True,
    ),
    "failurePolicy.rules[].roles[]": Case(
        "second",
        "third",
        changes=QUEUED,
        look=rule("roles"),
        seen=(["second"], ["third"]),
        needs={**more_roles("second", "third"), **with_rule(roles=["second"])},
        required=True,
    ),
    "failurePolicy.rules[].exitCodes[]": Case(
        2,
        "64-113",
        changes=QUEUED,
        look=rule("exitCodes"),
        seen=([2, 2], [64, 113]),
        needs=with_rule(exitCodes=[1]),
        required=True,
    ),
    "failurePolicy.rules[].signals[]": Case(
        "SIGKILL",
        11,
        changes=QUEUED,
        look=rule("signals"),
        seen=([9], [11]),
        needs=with_rule(signals=[1]),
        required=True,
    ),
    "failurePolicy.rules[].reasons[]": Case(
        "OOMKilled",
        "Evicted",
        changes=QUEUED,
        look=rule("reasons"),
        seen=(["OOMKilled"], ["Evicted"]),
        needs=with_rule(reasons=["Exit"]),
        required=True,
    ),
    **condition_cases("podConditions"),
    **condition_cases("nodeConditions"),
    "failurePolicy.backoff": Case(
        "5s", "100ms", changes=QUEUED, look=setting("BACKOFF"), seen=("5s", "100ms")
    ),
    "failurePolicy.gracePeriod": Case(
        "7s", "1m", changes=QUEUED, look=setting("GRACE_PERIOD"), seen=("7s", "60s")
    ),
    "failurePolicy.forceDeleteAfter": Case(
        "1s", "1h", changes=ALWAYS, test="test_lost_node_is_left"
    ),
    "acceleration.runtimeProfileName": Case(
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
    "acceleration.compression.disabled": Case(
        {}, {}, look=setting(COMPRESSION), seen=(None, None), needs=LOSSY, required=True
    ),
    **compression_cases("fp16", "startStep", 9, 10, "FP16:start=9", "FP16:start=10"),
    **compression_cases("bf16", "startStep", 2, 3, "BF16:start=2", "BF16:start=3"),
    **compression_cases("int8", "startStep", 5, 6, "Int8:start=5", "Int8:start=6"),
    **compression_cases("topK", "ratio", "0.01", "0.5", "TopK:ratio=0.01", "TopK:ratio=0.5"),
    **compression_cases("topK", "startStep", 7, 8, "TopK:start=7", "TopK:start=8"),
    **compression_cases("powerSGD", "rank", 1, 2, "PowerSGD:rank=1", "PowerSGD:rank=2"),
    **compression_cases("powerSGD", "startStep", 3, 4, "PowerSGD:start=3", "PowerSGD:start=4"),
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
    "acceleration.operators": Case(
        "Disabled", "Auto", look=told("operators"), seen=("Disabled", "Auto")
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
