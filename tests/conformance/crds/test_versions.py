# SPDX-License-Identifier: Apache-2.0
"""How the API gets its next version without a webhook: the same schema under two names. The CRD is
the project's own, in another group, so that no other test sees it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kube import ApiError, Kube, Object

CRD = Path(__file__).resolve().parents[3] / "crds" / "trainingjobs.yaml"
GROUP = "versions.paceline.dev"
NAME = f"trainingjobs.{GROUP}"
OLD, NEW = "v1alpha1", "v1beta1"


def definition(*versions: str, storage: str) -> Object:
    crd: Object = yaml.safe_load(CRD.read_text())
    crd["metadata"]["name"] = NAME
    spec = crd["spec"]
    spec["group"] = GROUP
    spec["names"].pop("shortNames", None)
    spec["conversion"] = {"strategy": "None"}
    (version,) = spec["versions"]
    spec["versions"] = [
        {**copy.deepcopy(version), "name": name, "served": True, "storage": name == storage}
        for name in versions
    ]
    return crd


def path(version: str, name: str = "", subresource: str = "") -> str:
    parts = [f"/apis/{GROUP}/{version}/namespaces/default/trainingjobs", name, subresource]
    return "/".join(part for part in parts if part)


def put_in_force(kube: Kube, *versions: str, storage: str) -> None:
    """Returns when exactly these versions are served, and the storage version is recorded."""
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(definition(*versions, storage=storage)))

    def served() -> bool:
        try:
            found = kube.request("GET", f"/apis/{GROUP}")
            for version in versions:
                kube.request("GET", path(version))  # refused while the storage changes
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        names = {version["version"] for version in found["versions"]}
        return names == {*versions} and storage in stored_versions(kube)

    kube.wait(f"{', '.join(versions)} served, {storage} stored", served)


def stored_versions(kube: Kube) -> list[str]:
    found = kube.get("customresourcedefinitions", "", NAME)["status"].get("storedVersions", [])
    return [str(name) for name in found]


def job(version: str, name: str) -> Object:
    trainer = {"name": "trainer", "image": "none", "command": ["train"]}
    role = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [trainer]}}}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"framework": {"type": "Custom"}, "roles": [role]},
    }


def patch(kube: Kube, version: str, name: str, change: Object, subresource: str = "") -> Object:
    where = path(version, name, subresource)
    changed: Object = kube.request("PATCH", where, change, "application/merge-patch+json")
    return changed


@pytest.fixture
def kube(admin: Kube) -> Iterator[Kube]:
    put_in_force(admin, OLD, storage=OLD)
    yield admin
    admin.delete("customresourcedefinitions", "", NAME)


def test_the_storage_version_moves_while_both_are_served(kube: Kube) -> None:
    kube.wait("a job is taken", lambda: kube.request("POST", path(OLD), job(OLD, "early")))
    before = patch(kube, OLD, "early", {"status": {"phase": "Running", "attempt": 1}}, "status")

    put_in_force(kube, OLD, NEW, storage=OLD)
    seen = kube.request("GET", path(NEW, "early"))
    assert seen["apiVersion"] == f"{GROUP}/{NEW}"
    for part in ("spec", "status"):
        assert seen[part] == before[part], "a job that was stored before reads through both"
    assert seen["metadata"]["uid"] == before["metadata"]["uid"]
    patch(kube, NEW, "early", {"spec": {"suspend": True}})
    assert kube.request("GET", path(OLD, "early"))["spec"]["suspend"] is True
    patch(kube, OLD, "early", {"status": {"attempt": 2}}, "status")
    assert kube.request("GET", path(NEW, "early"))["status"]["attempt"] == 2
    with pytest.raises(ApiError, match=r"spec\.roles"):
        patch(kube, NEW, "early", {"spec": {"roles": []}})

    put_in_force(kube, OLD, NEW, storage=NEW)
    assert stored_versions(kube) == [OLD, NEW]
    refused = kube.kubectl_result(
        "apply", "-f", "-", stdin=yaml.safe_dump(definition(NEW, storage=NEW))
    )
    assert refused.returncode != 0, "the earlier version went although objects are stored in it"
    assert "storedVersions" in refused.stderr, refused.stderr

    for stored in kube.request("GET", path(NEW))["items"]:
        name = stored["metadata"]["name"]
        written = kube.request("PUT", path(NEW, name), stored, "application/json")
        assert written["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"], (
            "the server stored it anew, though nothing changed"
        )
        assert written["metadata"]["generation"] == stored["metadata"]["generation"]
    where = kube.path("customresourcedefinitions", "", NAME, "status")
    moved = {"status": {"storedVersions": [NEW]}}
    kube.request("PATCH", where, moved, "application/merge-patch+json")
    put_in_force(kube, NEW, storage=NEW)
    last = kube.request("GET", path(NEW, "early"))
    assert (last["metadata"]["uid"], last["status"]["attempt"]) == (before["metadata"]["uid"], 2)
