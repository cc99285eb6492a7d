# SPDX-License-Identifier: Apache-2.0
"""The agents' objects and accounts on the API server under test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kube import Kube, Object

AGENTS = "paceline-agents"
NODES = ("one", "two")

Account = Callable[[str], Kube]


def fabric(node: str, **more: Any) -> Object:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "NodeFabric",
        "metadata": {"name": node},
        **more,
    }


def apply(
    kube: Kube,
    kind: str,
    namespace: str,
    body: Object,
    subresource: str = "",
    dry_run: bool = False,
) -> Object:
    """Server-side apply, as the agent writes."""
    path = kube.path(kind, namespace, body["metadata"]["name"], subresource)
    query = "?fieldManager=paceline-agent&force=true" + ("&dryRun=All" if dry_run else "")
    return kube.request("PATCH", path + query, body, "application/apply-patch+yaml")


def token(admin: Kube, namespace: str, name: str, **spec: Any) -> str:
    """A token of a service account, as TokenRequest gives it."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = admin.request("POST", admin.path("serviceaccounts", namespace, name, "token"), request)
    return str(answer["status"]["token"])


def pod_token(admin: Kube, node: str, **spec: Any) -> str:
    """As the kubelet projects it into the pod of that node's agent, which the fixture `agent` has
    made.
    """
    pod = admin.get("pods", AGENTS, f"agent-{node}")["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    return token(admin, AGENTS, "paceline-agent", boundObjectRef=bound, **spec)


def account(admin: Kube, file: Path, bound: Object | None) -> Kube:
    """The agents' service account, by a token that is bound to an object or to none."""
    mine = token(admin, AGENTS, "paceline-agent", **({"boundObjectRef": bound} if bound else {}))
    view = json.loads(
        admin.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
    )
    view["users"][0]["user"] = {"token": mine}
    file.write_text(json.dumps(view))
    return Kube(file)
