# SPDX-License-Identifier: Apache-2.0
"""The chart's roles, admission policies and resources as Helm renders them, on the real API server
that PACELINE_TEST_KUBECONFIG names, and accounts as the kubelet gets them for the agents' pods. The
API client of the cluster tests serves here too.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from agents import (  # noqa: E402
    AGENTS,
    NODES,
    Account,
    account,
    apply,
    fabric,
)
from kube import ApiError, Kube  # noqa: E402


@pytest.fixture(scope="session")
def admin() -> Kube:
    kube = Kube(Path(os.environ["PACELINE_TEST_KUBECONFIG"]))
    command = [
        "helm",
        "template",
        "paceline",
        str(ROOT / "helm" / "paceline"),
        "--include-crds",
        "--set",
        "agent.api.tlsSecret=agent-tls,agent.links.enabled=true",
    ]
    rendered = subprocess.run(
        [*command, "--namespace", "paceline-system"], capture_output=True, text=True, check=True
    )
    objects = [item for item in yaml.safe_load_all(rendered.stdout) if item]
    kinds = {
        "CustomResourceDefinition",
        "FlowSchema",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    wanted = [
        item
        for item in objects
        if item["kind"] in kinds
        or ("agent" in item["metadata"]["name"] and item["kind"] != "DaemonSet")
    ]
    # The namespace first: nobody waits for it here.
    wanted.sort(key=lambda item: item["kind"] != "Namespace")
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    for kind in ("nodefabrics", "runtimeprofiles", "trainingjobs"):
        kube.wait(
            f"{kind} are served", functools.partial(kube.is_established, f"{kind}.paceline.dev")
        )
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


@pytest.fixture(scope="session")
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
        bound = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
        }
        return account(admin, folder / f"{node}.json", bound)

    agents = {node: of(node) for node in NODES}
    return lambda node: agents[node]
