# SPDX-License-Identifier: Apache-2.0
"""Containers of a role's template, which the API server knows by their names."""

from __future__ import annotations

import pytest
from kube import ApiError, Kube, Object


def job(name: str, *containers: Object) -> Object:
    role = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [*containers]}}}
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"framework": {"type": "Custom"}, "suspend": True, "roles": [role]},
    }


def container(name: str, **fields: str) -> Object:
    return {"name": name, "image": "none", "command": ["train"], **fields}


def test_two_containers_of_one_name_are_refused(admin: Kube) -> None:
    with pytest.raises(ApiError) as caught:
        admin.create("trainingjobs", "default", job("twice", container("a"), container("a")))
    place = "spec.roles[0].template.spec.containers[1]: Duplicate value"
    assert place in caught.value.message, caught.value.message


def test_two_appliers_own_a_container_each(admin: Kube) -> None:
    """With an atomic list the second one would take the whole list."""
    for name in ("trainer", "sidecar"):
        path = admin.path("trainingjobs", "default", "applied")
        options = f"fieldManager=applier-{name}&force=true"
        body = job("applied", container(name))
        admin.request("PATCH", f"{path}?{options}", body, "application/apply-patch+yaml")
    (role,) = admin.get("trainingjobs", "default", "applied")["spec"]["roles"]
    containers = role["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["trainer", "sidecar"]
