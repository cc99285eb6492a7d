# SPDX-License-Identifier: Apache-2.0
"""A job waits for nodes that do not exist yet. Placeholders ask for them, and the real scheduler
puts each on a node that comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from autoscaler import POOL, Autoscaler, acting, placeholder_class
from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object
from test_gang import big

Submit = Callable[[Object], JobHandle]


@pytest.fixture(autouse=True)
def chart(kube: Kube) -> Iterator[None]:
    with placeholder_class(kube):
        yield


def placeholders(kube: Kube, namespace: str) -> list[Object]:
    return kube.list("pods", namespace, labelSelector="paceline.dev/placeholder-for=grows")


def test_placeholders_give_way_to_the_gang(kube: Kube, submit: Submit, namespace: str) -> None:
    """A node "comes" when it gets the label of the pool that the job selects. A node has no room
    for a pod of the gang beside its placeholder.
    """
    nodes = [node["metadata"]["name"] for node in kube.list("nodes")][:2]
    body = job(
        "grows",
        UNTIL_TOLD,
        replicas=2,
        requests=big(kube),
        scheduling={"provision": "Placeholders"},
    )
    body["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {POOL: "grown"}
    handle = submit(body)
    handle.wait_condition("Placed", "False", "WaitingForNodes")
    kube.wait("two placeholders wait", lambda: len(placeholders(kube, namespace)) == 2, namespace)
    assert handle.pods() == []
    try:
        kube.patch("nodes", "", nodes[0], {"metadata": {"labels": {POOL: "grown"}}})
        kube.wait(
            "one placeholder has a node, and the job says so",
            lambda: "1 of 2 placeholder pods hold a node" in handle.condition("Placed")["message"],
            namespace,
        )
        assert handle.pods() == [], "a part of the gang was started"
        kube.patch("nodes", "", nodes[1], {"metadata": {"labels": {POOL: "grown"}}})
        handle.wait_started(0, 2)
        kube.wait("the placeholders are gone", lambda: not placeholders(kube, namespace), namespace)
        handle.tell()
        handle.wait_phase("Succeeded")
    finally:
        for node in nodes:
            kube.patch("nodes", "", node, {"metadata": {"labels": {POOL: None}}})


def test_an_autoscaler_adds_nodes_for_the_placeholders(
    kube: Kube, submit: Submit, namespace: str
) -> None:
    """The pool has no node at first. What asks for its nodes are the pods that the real scheduler
    calls unschedulable, and it puts them on the nodes that come.
    """
    since = kube.listing("pods", namespace)["metadata"]["resourceVersion"]
    room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    scheduling = {"provision": "Placeholders"}
    body = job("grows", UNTIL_TOLD, requests={"cpu": "5"}, scheduling=scheduling)
    body["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {POOL: "fresh"}
    with acting(Autoscaler(kube.again(), namespace, "fresh", room)) as autoscaler:
        handle = submit(body)
        handle.wait_phase("Running")
        kube.wait("the placeholders are gone", lambda: not placeholders(kube, namespace), namespace)
        assert len(autoscaler.asked) == 2
        assert set(autoscaler.asked.values()) <= {"grows-placeholder-0", "grows-placeholder-1"}
        assert {pod["spec"]["nodeName"] for pod in handle.pods()} == set(autoscaler.asked)
        check_order(kube.history("pods", namespace, since))
        handle.delete()
        kube.wait("no pod is left", lambda: not kube.list("pods", namespace), namespace)


def check_order(events: list[Object]) -> None:
    """The gang came after each of its placeholders had a node of its own."""
    nodes: dict[str, str] = {}
    came = 0
    for event in events:
        pod = event["object"]
        name = pod["metadata"]["name"]
        if "paceline.dev/placeholder-for" in pod["metadata"]["labels"]:
            if "nodeName" in pod["spec"]:
                nodes[name] = pod["spec"]["nodeName"]
        elif event["type"] == "ADDED":
            came += 1
            assert len(set(nodes.values())) == 2, f"{name} came when placeholders held {nodes}"
    assert came == 2
