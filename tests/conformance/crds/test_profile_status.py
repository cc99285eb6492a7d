# SPDX-License-Identifier: Apache-2.0
"""The status of a RuntimeProfile on the real API server, and what the operator writes into it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kube import ApiError, Kube, Object
from test_effects import operator_at_work

CRD = Path(__file__).resolve().parents[3] / "crds" / "runtimeprofiles.yaml"
KIND = "runtimeprofiles"


def create(kube: Kube, name: str, acceleration: Object) -> Object:
    head = {"apiVersion": "paceline.dev/v1alpha1", "kind": "RuntimeProfile"}
    spec = {"acceleration": acceleration}
    return kube.create(KIND, "", {**head, "metadata": {"name": name}, "spec": spec})


def valid(kube: Kube, name: str) -> Object:
    """The condition Valid of the newest spec; empty until it is judged."""
    profile = kube.get(KIND, "", name)
    status = profile.get("status", {})
    if status.get("observedGeneration") != profile["metadata"]["generation"]:
        return {}
    (condition,) = status["conditions"]
    assert condition["type"] == "Valid"
    return condition


@pytest.fixture
def any_spec(admin: Kube) -> Iterator[None]:
    """The schema takes any acceleration, as that of another release may."""
    definition = yaml.safe_load(CRD.read_text())
    loose = copy.deepcopy(definition)
    spec = loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["acceleration"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    admin.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(loose))
    yield
    admin.kubectl("replace", "-f", "-", stdin=yaml.safe_dump(definition))


def test_the_operator_says_whether_jobs_can_use_it(
    admin: Kube, any_spec: None, tmp_path: Path
) -> None:
    def broken() -> bool:
        try:
            create(admin, "judged", {"loader": "On"})
        except ApiError as error:
            if error.code == 422:  # the looser schema is not in force yet
                return False
            raise
        return True

    admin.wait("a broken profile is taken", broken)
    with operator_at_work(admin, tmp_path):
        condition = admin.wait("the profile is judged", lambda: valid(admin, "judged"))
        assert (condition["status"], condition["reason"]) == ("False", "InvalidSpec")
        assert "spec.acceleration.loader" in condition["message"], condition
        admin.patch(KIND, "", "judged", {"spec": {"acceleration": {"loader": "Auto"}}})
        condition = admin.wait("it is judged again", lambda: valid(admin, "judged"))
        assert (condition["status"], condition["observedGeneration"]) == ("True", 2)
    header, row = admin.kubectl("get", KIND, "judged").splitlines()
    assert "True" in row[header.index("VALID") :].split()[:1], row
    version = admin.get(KIND, "", "judged")["metadata"]["resourceVersion"]
    with operator_at_work(admin, tmp_path):
        create(admin, "later", {"loader": "Auto"})
        admin.wait("another one is judged", lambda: valid(admin, "later"))
    newest = admin.get(KIND, "", "judged")["metadata"]["resourceVersion"]
    assert newest == version, "an operator that starts rewrote a status that was right"


def test_status_and_spec_are_written_apart(admin: Kube) -> None:
    create(admin, "apart", {"mode": "Auto"})
    condition = {
        "type": "Valid",
        "status": "True",
        "reason": "Valid",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    both = {"spec": {"acceleration": {"mode": "Manual"}}, "status": {"conditions": [condition]}}
    by_status = admin.patch(KIND, "", "apart", both, "status")
    assert by_status["spec"]["acceleration"]["mode"] == "Auto"
    assert by_status["metadata"]["generation"] == 1
    by_spec = admin.patch(KIND, "", "apart", {**both, "status": {"conditions": []}})
    assert by_spec["status"]["conditions"] == [condition]
    wrong = {"status": {"conditions": [{**condition, "status": "Maybe"}]}}
    with pytest.raises(ApiError, match=r"status\.conditions\[0\]\.status"):
        admin.patch(KIND, "", "apart", wrong, "status")
