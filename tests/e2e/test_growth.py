# SPDX-License-Identifier: Apache-2.0
"""A job waits for nodes that do not exist yet. Placeholders ask for them, and the real scheduler
puts each on a node that comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from jobs import UNTIL_TOLD, JobHandle, job
from kube import Kube, Object
from test_gang import big

Submit = Callable[[Object], JobHandle]
POOL = "paceline.test/pool"


@pytest.fixture
def placeholder_class(kube: Kube) -> Iterator[None]:
    """As the chart has it."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "paceline-placeholder"},
        "value": -10,
        "preemptionPolicy": "Never",
    }
    kube.create("priorityclasses", "", body)
    yield
    kube.delete("priorityclasses", "", "paceline-placeholder")


def placeholders(kube: Kube, namespace: str) -> list[Object]:
    return kube.list("pods", namespace, labelSelector="paceline.dev/placeholder-for=grows")


def test_placeholders_give_way_to_the_gang(
    kube: Kube, placeholder_class: None, submit: Submit, namespace: str
) -> None:
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
