# SPDX-License-Identifier: Apache-2.0
"""Renders the chart by `helm template`, and finds parts of what it renders."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "paceline"


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    helm = shutil.which("helm")
    assert helm, "helm is not on PATH: tests/cluster/build-tools builds it"
    command = [
        helm,
        "template",
        "paceline",
        str(CHART),
        "--namespace",
        "paceline-system",
        "--include-crds",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render(*arguments: str) -> list[dict[str, Any]]:
    done = template(*arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_of(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return one(objects, kind, name)["spec"]["template"]["spec"]


def rules(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, set[str]]:
    """Verbs by "group/resource", or "group/resource[names]" if the rule is for some names only."""
    table: dict[str, set[str]] = {}
    for rule in one(objects, kind, name)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = f"[{','.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
                table.setdefault(f"{group}/{resource}{names}", set()).update(rule["verbs"])
    return table


def mounts(container: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Path and whether it is read-only, by volume."""
    return {
        mount["name"]: (mount["mountPath"], mount.get("readOnly", False))
        for mount in container.get("volumeMounts", [])
    }
