# SPDX-License-Identifier: Apache-2.0
"""Who may write a NodeFabric, asked of the real API server: the chart's roles and admission policies as Helm renders them,
and tokens as the kubelet gets them for the agents' pods. PACELINE_TEST_KUBECONFIG names the server's administrator."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube import ApiError, Kube, Object

ROOT = Path(__file__).resolve().parents[2]
AGENTS = "paceline-agents"
NODES = ("one", "two")
STATUS: Object = {"agentVersion": "1", "cpu": {"model": "x", "cores": 1, "threads": 1, "numaNodes": []}, "nics": []}

Account = Callable[[str], Kube]


def fabric(node: str, **more: Any) -> Object:
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": "NodeFabric", "metadata": {"name": node}, **more}


def apply(kube: Kube, kind: str, namespace: str, body: Object, subresource: str = "", dry_run: bool = False) -> Object:
    """Server-side apply, as the agent writes."""
    path = kube.path(kind, namespace, body["metadata"]["name"], subresource)
    query = "?fieldManager=paceline-agent&force=true" + ("&dryRun=All" if dry_run else "")
    return kube.request("PATCH", path + query, body, "application/apply-patch+yaml")


def refused(kube: Kube, kind: str, namespace: str, body: Object, subresource: str = "") -> str:
    """The words in which the server refuses; a write that it takes fails the test."""
    with pytest.raises(ApiError) as caught:
        apply(kube, kind, namespace, body, subresource)
    assert caught.value.code == 403, caught.value
    return caught.value.message


@pytest.fixture(scope="module")
def admin() -> Kube:
    kube = Kube(Path(os.environ["PACELINE_TEST_KUBECONFIG"]))
    command = ["helm", "template", "paceline", str(ROOT / "helm" / "paceline"), "--include-crds"]
    rendered = subprocess.run([*command, "--namespace", "paceline-system"], capture_output=True, text=True, check=True)
    objects = [item for item in yaml.safe_load_all(rendered.stdout) if item]
    kinds = {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    wanted = [
        item
        for item in objects
        if item["kind"] in kinds or ("agent" in item["metadata"]["name"] and item["kind"] != "DaemonSet")
    ]
    # The namespace first: nobody waits for it here.
    wanted.sort(key=lambda item: item["kind"] != "Namespace")
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    kube.wait("NodeFabric is served", lambda: kube.is_established("nodefabrics.paceline.dev"))
    for node in NODES:
        kube.create("nodes", "", {"metadata": {"name": node}})

    def in_force() -> bool:
        try:
            apply(kube, "nodefabrics", "", fabric("nowhere"), dry_run=True)
        except ApiError as error:
            return error.code == 403
        return False

    kube.wait("the admission policy is in force", in_force)
    return kube


@pytest.fixture(scope="module")
def agent(admin: Kube, tmp_path_factory: pytest.TempPathFactory) -> Account:
    """What an agent on a node may do: its pod's token, as the kubelet asks for it."""
    folder = tmp_path_factory.mktemp("accounts")

    def of(node: str) -> Kube:
        pod = {
            "metadata": {"name": f"agent-{node}"},
            "spec": {
                "serviceAccountName": "paceline-agent",
                "nodeName": node,
                "containers": [{"name": "agent", "image": "none"}],
            },
        }
        made = admin.create("pods", AGENTS, pod)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
        return account(admin, folder / f"{node}.json", bound)

    agents = {node: of(node) for node in NODES}
    return lambda node: agents[node]


def account(admin: Kube, file: Path, bound: Object | None) -> Kube:
    """The agents' service account, by a token that is bound to an object or to none."""
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    if bound:
        request["spec"]["boundObjectRef"] = bound
    path = admin.path("serviceaccounts", AGENTS, "paceline-agent", "token")
    token = admin.request("POST", path, request)["status"]["token"]
    view = json.loads(admin.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    view["users"][0]["user"] = {"token": token}
    file.write_text(json.dumps(view))
    return Kube(file)


def test_an_agent_writes_its_own_node(admin: Kube, agent: Account) -> None:
    one = agent("one")
    apply(one, "nodefabrics", "", fabric("one"))
    apply(one, "nodefabrics", "", fabric("one", status=STATUS), "status")
    assert admin.get("nodefabrics", "", "one")["status"]["agentVersion"] == "1"


def test_an_agent_cannot_write_another_node(admin: Kube, agent: Account) -> None:
    message = refused(agent("one"), "nodefabrics", "", fabric("two"))
    assert "NodeFabric two is written only by the Paceline agent of that node" in message
    assert "paceline-agent of node one" in message
    assert admin.find("nodefabrics", "", "two") is None
    # Nor what is there already, by itself or by its status.
    two = agent("two")
    apply(two, "nodefabrics", "", fabric("two"))
    apply(two, "nodefabrics", "", fabric("two", status=STATUS), "status")
    before = admin.get("nodefabrics", "", "two")
    forged = fabric("two", status={**STATUS, "agentVersion": "forged"})
    refused(agent("one"), "nodefabrics", "", forged, "status")
    refused(agent("one"), "nodefabrics", "", {**forged, "metadata": {"name": "two", "labels": {"forged": "yes"}}})
    assert admin.get("nodefabrics", "", "two") == before


def test_nobody_else_writes_a_fabric(admin: Kube, tmp_path: Path) -> None:
    assert "written only by the Paceline agent" in refused(admin, "nodefabrics", "", fabric("three"))
    # A token of the right account that was not made for a pod on a node.
    loose = account(admin, tmp_path / "loose.json", None)
    assert "written only by the Paceline agent" in refused(loose, "nodefabrics", "", fabric("one"))


def test_an_agent_holds_only_its_own_lease(admin: Kube, agent: Account) -> None:
    def lease(node: str) -> Object:
        meta = {"name": f"paceline-agent-{node}"}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}

    apply(agent("one"), "leases", AGENTS, lease("one"))
    message = refused(agent("one"), "leases", AGENTS, lease("two"))
    assert "paceline-agent-two is not of the node that this agent runs on" in message
    # Other leases are none of the policy's business, and others none of the agents'.
    apply(admin, "leases", AGENTS, lease("two"))
    with pytest.raises(ApiError) as caught:
        agent("one").delete("leases", AGENTS, "paceline-agent-one")
    assert caught.value.code == 403
    with pytest.raises(ApiError) as caught:
        agent("one").list("pods", AGENTS)
    assert caught.value.code == 403
