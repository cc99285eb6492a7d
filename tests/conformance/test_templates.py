# SPDX-License-Identifier: Apache-2.0
"""Pod templates with a wrong type or an unknown field in any place of core/v1's PodSpec, as the API
server describes it. Each job is refused by name, and a job beside them starts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from job_properties import BASE
from jobs import JobHandle
from kube import ApiError, Kube, Object
from schemas import Property, merged, properties, wrong_types
from test_effects import nodes_named, operator_at_work

SPACE = "templates"
POD = "#/components/schemas/io.k8s.api.core.v1.PodSpec"
# Refused whole, whatever they hold.
REFUSED_WHOLE = ("schedulingGates[].",)


@pytest.fixture(scope="module")
def kube(admin: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    admin.create("namespaces", "", {"metadata": {"name": SPACE}})
    folder = tmp_path_factory.mktemp("operator")
    with nodes_named(admin, "templates"), operator_at_work(admin, folder):
        yield admin


def cases(kube: Kube) -> Iterator[tuple[Property, Any]]:
    """One wrong value for each property of each component, and an unknown field for each object.
    A component that stands in several places is tried in the first.
    """
    components = kube.request("GET", "/openapi/v3/api/v1")["components"]["schemas"]
    seen = set()
    for prop in properties({"$ref": POD}, components):
        place = (prop.owner, prop.key, prop.path[-1])
        if place in seen or str(prop).startswith(REFUSED_WHOLE):
            continue
        seen.add(place)
        wrong = wrong_types(prop.schema)
        yield prop, wrong[len(seen) % len(wrong)]
        if "properties" in prop.schema:
            yield prop, {"notAField": 1}


def template(prop: Property, value: Any) -> Object:
    body = copy.deepcopy(BASE)
    inner = body["spec"]["roles"][0]["template"]
    inner["spec"] = merged(inner["spec"], prop.holding(value))
    return body


def is_told(message: str, prop: Property, value: Any) -> bool:
    """Whether the field is named. Some are named by their parent alone."""
    if isinstance(value, dict) and "notAField" in value and "notAField" in message:
        return True
    # Of a time the API server tells the value alone.
    if prop.path[-1].endswith("Timestamp") and str(value) in message:
        return True
    names = [part for part in prop.path if part.isalnum()]
    return any(name in message for name in names[-2:])


def test_wrong_templates_are_refused_by_name(kube: Kube) -> None:
    waiting: dict[str, tuple[Property, Any]] = {}
    faults, count = [], 0
    for count, (prop, value) in enumerate(cases(kube), 1):
        body = {**template(prop, value), "metadata": {"name": f"wrong-{count}"}}
        try:
            kube.create("trainingjobs", SPACE, body)
            waiting[f"wrong-{count}"] = (prop, value)
        except ApiError as error:
            if not is_told(error.message, prop, value):
                faults.append(f"{prop} = {value}: {error.message[:300]}")
    kube.create("trainingjobs", SPACE, {**BASE, "metadata": {"name": "bystander"}})
    bystander = JobHandle(kube, SPACE, "bystander")
    kube.wait("the bystander has its pods", lambda: len(bystander.pods()) == 2, SPACE)

    def refused() -> bool:
        for item in kube.list("trainingjobs", SPACE):
            name = item["metadata"]["name"]
            conditions = item.get("status", {}).get("conditions", [])
            placed = next((c for c in conditions if c["type"] == "Placed"), None)
            if name not in waiting or placed is None:
                continue
            prop, value = waiting.pop(name)
            by_name = is_told(placed["message"], prop, value)
            if placed["reason"] not in ("InvalidSpec", "PodRefused") or not by_name:
                faults.append(f"{prop} = {value}: {placed['reason']}: {placed['message'][:300]}")
        return not waiting

    kube.wait("every wrong template is refused", refused, SPACE, poll=0.5)
    print(f"{count} templates")
    assert not faults, "\n".join(faults)
    pods = {pod["metadata"]["labels"]["paceline.dev/job"] for pod in kube.list("pods", SPACE)}
    assert pods == {"bystander"}
