# SPDX-License-Identifier: Apache-2.0
"""Lists of a TrainingJob's status whose elements have names, by which the API server knows them."""

from __future__ import annotations

from typing import Any

import pytest
from kube import ApiError, Kube, Object

NAMED: dict[str, Object] = {
    "roles": {"replicas": 2, "ready": 1},
    "excludedNodes": {"message": "no link", "since": "2026-01-01T00:00:00Z", "count": 1},
}


@pytest.fixture(scope="module")
def job(admin: Kube) -> str:
    trainer = {"name": "trainer", "image": "none", "command": ["train"]}
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [trainer]}}}
    head = {"apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob"}
    spec = {"framework": {"type": "Custom"}, "roles": [role]}
    admin.create("trainingjobs", "default", {**head, "metadata": {"name": "named"}, "spec": spec})
    return "named"


def written(kube: Kube, job: str, field: str, value: Any) -> Any:
    change = {"status": {field: value}}
    return kube.patch("trainingjobs", "default", job, change, "status")["status"][field]


@pytest.mark.parametrize("field", NAMED)
def test_two_elements_of_one_name_are_refused(admin: Kube, job: str, field: str) -> None:
    two = [{"name": name, **NAMED[field]} for name in ("a", "b")]
    assert written(admin, job, field, two) == two
    with pytest.raises(ApiError) as caught:
        written(admin, job, field, [two[0], two[0]])
    assert f"status.{field}[1]: Duplicate value" in caught.value.message, caught.value.message


@pytest.mark.parametrize("field", NAMED)
def test_two_appliers_own_an_element_each(admin: Kube, job: str, field: str) -> None:
    """With an atomic list the second one would take the whole list."""
    for name in ("a", "b"):
        path = admin.path("trainingjobs", "default", job, "status")
        body = {
            "apiVersion": "paceline.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": job},
            "status": {field: [{"name": name, **NAMED[field]}]},
        }
        options = f"fieldManager=applier-{name}&force=true"
        admin.request("PATCH", f"{path}?{options}", body, "application/apply-patch+yaml")
    elements = admin.get("trainingjobs", "default", job)["status"][field]
    assert [element["name"] for element in elements] == ["a", "b"]
