# SPDX-License-Identifier: Apache-2.0
"""Two agents measure the way between them, as `paceline measure` asks: tokens, rights and
NodeFabrics of the real API server.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from agents import NODES, Account, pod_token, token
from kube import Kube
from test_agent_access import AGENT, AUDIENCE, PATIENCE_SECONDS, certify


@pytest.fixture
def agents(admin: Kube, agent: Account, tmp_path: Path) -> Iterator[None]:
    """Both nodes' agents, which find each other by their NodeFabrics."""
    certify(tmp_path)
    with ExitStack() as running:
        for node in NODES:
            (tmp_path / f"{node}.token").write_text(pod_token(admin, node, audiences=[AUDIENCE]))
            log = running.enter_context((tmp_path / f"{node}.log").open("wb"))
            words = [
                f"--node-name={node}",
                f"--kubeconfig={agent(node).kubeconfig}",
                "--namespace=paceline-agents",
            ]
            listen = [
                "--listen-address=127.0.0.1",
                "--listen-port=0",
                "--api-port=0",
                "--links-port=0",
            ]
            tls = [f"--api-certificate={tmp_path / 'tls.crt'}", f"--api-key={tmp_path / 'tls.key'}"]
            links = [f"--links-token={tmp_path / node}.token", f"--links-ca={tmp_path / 'tls.crt'}"]
            command = [str(AGENT), *words, *listen, *tls, *links, "--pod-address=127.0.0.1"]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            running.callback(process.wait)
            running.callback(process.kill)
        for node in NODES:
            admin.wait(
                f"agent {node} has published where it is",
                lambda node=node: has_published(admin, node, tmp_path / f"{node}.log"),
            )
        yield


def has_published(admin: Kube, node: str, log: Path) -> bool:
    """Whether the NodeFabric has the address of this agent, and not of one before it."""
    port = re.search(r"/v1/checks on port (\d+)", log.read_text())
    status = (admin.find("nodefabrics", "", node) or {}).get("status", {})
    return port is not None and status.get("agentAddress") == f"127.0.0.1:{port[1]}"


def allow(admin: Kube, name: str, resource: str, verb: str) -> None:
    """An account of that name that may do this."""
    group = "rbac.authorization.k8s.io"
    meta = {"name": f"links-{name}"}
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": [{"apiGroups": ["paceline.dev"], "resources": [resource], "verbs": [verb]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    ]
    admin.kubectl("apply", "-n", "default", "-f", "-", stdin=yaml.safe_dump_all(objects))


def exec_by_shim(folder: Path, node: str, admin: Kube) -> dict[str, str]:
    """An environment whose `kubectl exec` starts the agent's program as in the pod of the node."""
    told = admin.get("nodefabrics", "", node)["status"]["agentAddress"].rpartition(":")[2]
    pod = {
        "NODE_NAME": node,
        "POD_IP": "127.0.0.1",
        "AGENT_API_PORT": told,
        "AGENT_LINKS_TOKEN": str(folder / f"{node}.token"),
        "AGENT_LINKS_CA": str(folder / "tls.crt"),
    }
    settings = " ".join(f"{name}={value}" for name, value in pod.items())
    shim = folder / "kubectl"
    shim.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {folder / "kubectl.words"}\n'
        'while [ "$1" != -- ]; do shift; done; shift 2\n'
        f'exec env {settings} {AGENT} "$@"\n'
    )
    shim.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_without_a_token_the_agent_asks_itself(admin: Kube, agents: None, tmp_path: Path) -> None:
    command = [str(AGENT.parent / "paceline"), "measure", "--node=two", "--peer=one", "--json"]
    command += [f"--kubeconfig={admin.kubeconfig}", "--agent-namespace=paceline-agents"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=exec_by_shim(tmp_path, "two", admin)
    )
    assert done.returncode == 0, done.stderr
    link = json.loads(done.stdout)
    assert (link["node"], link["peer"]) == ("two", "one")
    # The agent has 300 ms for all flows together. On a busy machine none may come through in time,
    # and then it tells nothing of them.
    flows = link.get("flows")
    assert flows is None or (flows["count"] > 1 and flows["bandwidthMbps"] > 0)
    words = (tmp_path / "kubectl.words").read_text().split()
    assert {"exec", "--namespace=paceline-agents", "--container=agent"} <= set(words)


def test_two_agents_measure_the_way_between_them(admin: Kube, agents: None, tmp_path: Path) -> None:
    allow(admin, "looks", "nodefabrics", "get")
    allow(admin, "measures", "nodefabrics/links", "create")
    for name in ("looks", "measures"):
        (tmp_path / name).write_text(token(admin, "default", name, audiences=[AUDIENCE]))

    def measure(who: str, *more: str) -> tuple[int, str, str]:
        cluster = [f"--kubeconfig={admin.kubeconfig}", f"--agent-ca={tmp_path / 'tls.crt'}"]
        command = [
            str(AGENT.parent / "paceline"),
            "measure",
            "--node=one",
            *cluster,
            f"--agent-token={tmp_path / who}",
        ]
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, _, why = measure("looks", "--peer=two")
    assert (code, "may not `create` the links" in why) == (2, True), why
    # The rights that were just given reach the authorizer a moment later.
    until = time.monotonic() + PATIENCE_SECONDS
    while (answer := measure("measures", "--peer=two", "--json"))[0] != 0 and "may not" in answer[
        2
    ]:
        assert time.monotonic() < until, answer
        time.sleep(1)
    code, text, why = answer
    assert code == 0, why
    link = json.loads(text)
    assert (link["node"], link["peer"]) == ("one", "two")
    assert link["latencySeconds"] > 0 and link["bandwidthMbps"] > 0 and len(link["roundTrips"]) >= 3

    def published() -> bool:
        links = admin.get("nodefabrics", "", "one")["status"].get("links", [])
        return [(each["peer"], each["measuredTime"]) for each in links] == [
            ("two", link["measuredTime"])
        ]

    admin.wait("the link is in the NodeFabric", published)
    code, _, why = measure("measures", "--peer=two")
    assert (code, "come again in" in why) == (2, True), why
