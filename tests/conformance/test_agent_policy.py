# SPDX-License-Identifier: Apache-2.0
"""Who may write a NodeFabric, asked of the real API server: the chart's roles and admission
policies as Helm renders them, and tokens as the kubelet gets them for the agents' pods.
PACELINE_TEST_KUBECONFIG names the server's administrator.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from agents import AGENTS, Account, account, apply, fabric
from kube import ApiError, Kube, Object

STATUS: Object = {
    "agentVersion": "1",
    "cpu": {"model": "x", "cores": 1, "threads": 1, "numaNodes": []},
    "nics": [],
}


def refused(kube: Kube, kind: str, namespace: str, body: Object, subresource: str = "") -> str:
    """The words in which the server refuses; a write that it takes fails the test."""
    with pytest.raises(ApiError) as caught:
        apply(kube, kind, namespace, body, subresource)
    assert caught.value.code == 403, caught.value
    return caught.value.message


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
    refused(
        agent("one"),
        "nodefabrics",
        "",
        {**forged, "metadata": {"name": "two", "labels": {"forged": "yes"}}},
    )
    assert admin.get("nodefabrics", "", "two") == before


def test_nobody_else_writes_a_fabric(admin: Kube, tmp_path: Path) -> None:
    assert "written only by the Paceline agent" in refused(
        admin, "nodefabrics", "", fabric("three")
    )
    # A token of the right account that was not made for a pod on a node.
    loose = account(admin, tmp_path / "loose.json", None)
    assert "written only by the Paceline agent" in refused(loose, "nodefabrics", "", fabric("one"))


def test_an_agent_holds_only_its_own_lease(admin: Kube, agent: Account) -> None:
    def lease(node: str) -> Object:
        meta = {"name": f"paceline-agent-{node}"}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": {},
        }

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
