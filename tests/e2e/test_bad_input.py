# SPDX-License-Identifier: Apache-2.0
"""What is wrong is refused with the field, the value and the remedy: by the API server where the
schema can, else by a condition of the job before it has any pod.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from jobs import JobHandle, job, role, trainer
from kube import ApiError, Kube, Object

Submit = Callable[[Object], JobHandle]


def refused(kube: Kube, namespace: str, body: Object) -> str:
    with pytest.raises(ApiError) as caught:
        kube.create("trainingjobs", namespace, body)
    return caught.value.message


def test_api_server_names_what_it_refuses(kube: Kube, namespace: str) -> None:
    unknown = job("unknown")
    unknown["spec"]["elasticity"] = True
    twice = job("twice")
    twice["spec"]["roles"] *= 2
    many = job("many")
    many["spec"]["roles"] = [role(f"r{i}", 9000, trainer("exit 0")) for i in range(2)]
    processes = job("processes", processes=65)
    framework = job("framework")
    framework["spec"]["framework"]["type"] = "Torch"
    timeout = job("timeout", scheduling={"gangTimeout": "soon"})
    contradiction = job("contradicts", acceleration={"mode": "Disabled", "loader": "Auto"})
    boolean = job("boolean", acceleration={"mode": False})  # what kubectl makes of a bare Off
    cases = [
        (contradiction, ["spec.acceleration", "mode: Disabled contradicts loader: Auto"]),
        (boolean, ["spec.acceleration.mode", "must be of type string"]),
        (unknown, ["spec.elasticity", "unknown field"]),
        (twice, ["spec.roles[1]", "Duplicate value", "worker"]),
        (many, ["spec", "at most 10000 replicas"]),
        (processes, ["spec.framework.processesPerReplica", "1 to 64, or Auto"]),
        (framework, ["spec.framework.type", "Torch", "PyTorch"]),
        (timeout, ["spec.scheduling.gangTimeout", "soon"]),
        (job("Capital-Name"), ["metadata.name"]),
        (job("x" * 37), ["metadata.name", "at most 36"]),
        (job("none", replicas=0), ["spec.roles[0].replicas", "greater than or equal to 1"]),
    ]
    for body, words in cases:
        message = refused(kube, namespace, body)
        missing = [word for word in words if word not in message]
        assert not missing, f"{body['metadata']['name']}: {missing} not in: {message}"
    assert kube.list("trainingjobs", namespace) == []


def test_running_job_cannot_change_shape(kube: Kube, namespace: str) -> None:
    """Role by role: count, template (typed and untyped fields), name, order, one more, one less.
    Suspended, it may.
    """
    body = job(
        "fixed", managedBy="nobody.example/else"
    )  # left alone: the rules are the API server's
    body["spec"]["roles"].append(role("second", 1, trainer("exit 0")))
    kube.create("trainingjobs", namespace, body)
    roles = body["spec"]["roles"]

    def changed(edit: Callable[[list[Object]], object]) -> list[Object]:
        copied = copy.deepcopy(roles)
        edit(copied)
        return copied

    def environment(container: Object) -> None:
        container["env"] = [{"name": "SEED", "value": "2"}]

    edits: dict[str, list[Object]] = {
        "count": changed(lambda r: r[0].update(replicas=3)),
        "command": changed(
            lambda r: r[0]["template"]["spec"]["containers"][0].update(command=["/bin/false"])
        ),
        "env": changed(lambda r: environment(r[0]["template"]["spec"]["containers"][0])),
        "nodeSelector": changed(lambda r: r[0]["template"]["spec"].update(nodeSelector={"a": "b"})),
        "label": changed(lambda r: r[0]["template"].update(metadata={"labels": {"a": "b"}})),
        "rename": changed(lambda r: r[0].update(name="renamed")),
        "reorder": changed(lambda r: r.reverse()),
        "add": changed(lambda r: r.append(role("third", 1, trainer("exit 0")))),
        "remove": changed(lambda r: r.pop()),
    }
    for what, value in edits.items():
        with pytest.raises(ApiError) as caught:
            kube.patch("trainingjobs", namespace, "fixed", {"spec": {"roles": value}})
        assert (
            "(names, order, kinds, replicas, processes, startAfter, templates) may change only"
            in caught.value.message
        ), what
    with pytest.raises(ApiError) as caught:
        kube.patch("trainingjobs", namespace, "fixed", {"spec": {"successPolicy": "RankZero"}})
    assert "successPolicy" in caught.value.message and "suspend" in caught.value.message
    kube.patch("trainingjobs", namespace, "fixed", {"status": {"phase": "Running"}}, "status")
    with pytest.raises(ApiError) as caught:
        kube.patch(
            "trainingjobs", namespace, "fixed", {"spec": {"failurePolicy": {"maxRestarts": 9}}}
        )
    assert "only while the job is queued or suspended" in caught.value.message
    with pytest.raises(ApiError) as caught:
        kube.patch("trainingjobs", namespace, "fixed", {"spec": {"acceleration": {}}})
    assert "acceleration may change only while the job is suspended" in caught.value.message
    with pytest.raises(ApiError) as caught:
        kube.patch("trainingjobs", namespace, "fixed", {"spec": {"managedBy": None}})
    assert "managedBy" in caught.value.message
    # Unsuspending and changing in one step would slip a change past the suspended state.
    kube.patch("trainingjobs", namespace, "fixed", {"spec": {"suspend": True}})
    with pytest.raises(ApiError):
        kube.patch(
            "trainingjobs",
            namespace,
            "fixed",
            {"spec": {"suspend": False, "roles": edits["count"]}},
        )
    kube.patch("trainingjobs", namespace, "fixed", {"spec": {"roles": edits["rename"]}})
    kube.patch("trainingjobs", namespace, "fixed", {"spec": {"suspend": False}})
    assert kube.get("trainingjobs", namespace, "fixed")["spec"]["roles"][0]["name"] == "renamed"


def test_columns_and_crd_size(kube: Kube, namespace: str) -> None:
    kube.create("trainingjobs", namespace, job("columns", managedBy="nobody.example/else"))
    header = kube.kubectl("get", "trainingjobs", "-n", namespace).splitlines()[0].split()
    shown = " ".join(header)
    assert shown == "NAME PHASE READY STEP STEP TIME BOTTLENECK RESTARTS AGE", shown
    wide = kube.kubectl("get", "tj", "-n", namespace, "-o", "wide").splitlines()[0].split()
    assert wide[-3:] == ["QUEUE", "PLACEMENT", "REASON"]
    for name in ("trainingjobs", "nodefabrics", "runtimeprofiles"):
        text = kube.kubectl("get", "crd", f"{name}.paceline.dev", "-o", "json")
        assert len(text) < 200_000, f"CRD {name} has {len(text)} bytes"


def wait_message(handle: JobHandle, *words: str) -> None:
    """The Placed condition tells all the words, and there is no pod."""

    def told() -> bool:
        return all(word in handle.condition("Placed")["message"] for word in words)

    handle.kube.wait(f"Placed of {handle.name} tells {words}", told, handle.namespace)
    assert handle.condition("Placed")["status"] == "False"
    assert handle.pods() == []
    assert handle.phase == "Queued"


def test_typo_inside_the_template_is_told_by_the_dry_run(submit: Submit) -> None:
    body = job("typo")
    body["spec"]["roles"][0]["template"]["spec"]["containers"][0]["imagePulPolicy"] = "Never"
    wait_message(submit(body), "imagePulPolicy", "unknown field")


def test_missing_command_says_what_to_write_and_recovers(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    body = job("commandless")
    right = copy.deepcopy(body["spec"]["roles"])
    del body["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"]
    handle = submit(body)
    wait_message(
        handle,
        "spec.roles[0].template.spec.containers[0].command",
        "is required",
        'command: ["python3"',
    )
    kube.patch("trainingjobs", namespace, "commandless", {"spec": {"suspend": True}})
    kube.patch("trainingjobs", namespace, "commandless", {"spec": {"roles": right}})
    kube.patch("trainingjobs", namespace, "commandless", {"spec": {"suspend": False}})
    handle.wait_phase("Succeeded")


def test_contradicting_torchrun_flag_is_named(submit: Submit) -> None:
    body = job("standalone", replicas=2)
    body["spec"]["framework"]["type"] = "PyTorch"
    container = body["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["torchrun", "--standalone", "train.py"]
    handle = submit(body)

    def told() -> bool:
        texts = [c["message"] for c in handle.status.get("conditions", [])]
        return any("--standalone" in text for text in texts)

    handle.kube.wait("a condition names --standalone", told, handle.namespace)


def test_roles_that_contradict_the_framework_are_named(submit: Submit) -> None:
    def handle(name: str, framework: str, **kinds: int) -> JobHandle:
        """A job with a role of each kind, of so many replicas."""
        body = job(name)
        body["spec"]["framework"]["type"] = framework
        body["spec"]["roles"] = [
            {**role(kind.lower(), count, trainer("exit 0")), "kind": kind}
            for kind, count in kinds.items()
        ]
        return submit(body)

    unknown = handle("unknown-kind", "JAX", Worker=1, ParameterServer=1)
    chiefs = handle("two-chiefs", "TensorFlow", Coordinator=2, Worker=1)
    idle = handle("no-worker", "TensorFlow", Coordinator=1, ParameterServer=1)
    serverless = handle("no-server", "BytePS", Scheduler=1, Worker=1)
    wait_message(
        unknown,
        "spec.roles[1].kind: ParameterServer is no kind that JAX knows",
        "write one of Coordinator, Worker",
    )
    wait_message(
        chiefs, "spec.roles[0].replicas: 2 is too large: TensorFlow has at most one chief; write 1"
    )
    wait_message(idle, "spec.roles: have no role of kind Worker", "add a role with kind: Worker")
    wait_message(
        serverless,
        "spec.roles: have no role of kind ParameterServer",
        "add a role with kind: ParameterServer",
    )


def test_what_placement_does_not_model_is_refused_by_name(submit: Submit) -> None:
    body = job("spread")
    pod = body["spec"]["roles"][0]["template"]["spec"]
    pod["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
        }
    ]
    pod["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    wait_message(submit(body), "topologySpreadConstraints[0]", "ports[0].hostPort", "remove it")
