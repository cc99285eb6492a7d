# SPDX-License-Identifier: Apache-2.0
"""Who may read an agent's /v1: the agent itself, its chart's roles, and tokens and permissions of
the real API server.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents import Account, token
from kube import Kube

ROOT = Path(__file__).resolve().parents[2]
AGENT = (
    Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
    / "bin"
    / "paceline-agent"
)
AUDIENCE = "paceline-agent"
PATIENCE_SECONDS = 120

Get = Callable[..., tuple[int, dict[str, Any]]]


def certify(folder: Path) -> None:
    """tls.crt and tls.key of a new self-signed certificate, put in place one after the other as a
    projected Secret is not.
    """
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=agent", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "new.key"), "-out", str(folder / "new.crt")]
    subprocess.run([*new, *names, *files], check=True, capture_output=True)
    for end in ("key", "crt"):
        (folder / f"new.{end}").rename(folder / f"tls.{end}")


@pytest.fixture
def get(agent: Account, tmp_path: Path) -> Iterator[Get]:
    """get(path, token) of an agent of node `one`: the answer's status and its JSON."""
    certify(tmp_path)
    log = tmp_path / "agent.log"
    command = [
        str(AGENT),
        "--node-name=one",
        f"--kubeconfig={agent('one').kubeconfig}",
        "--namespace=paceline-agents",
    ]
    listen = ["--listen-address=127.0.0.1", "--listen-port=0", "--api-port=0"]
    files = [f"--api-certificate={tmp_path / 'tls.crt'}", f"--api-key={tmp_path / 'tls.key'}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *listen, *files], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not (port := re.search(r"/v1/checks on port (\d+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)

        def get(path: str, bearer: str = "") -> tuple[int, dict[str, Any]]:
            trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
            connection = http.client.HTTPSConnection(
                "127.0.0.1", int(port[1]), context=trust, timeout=PATIENCE_SECONDS
            )
            connection.request(
                "GET", path, headers={"Authorization": f"Bearer {bearer}"} if bearer else {}
            )
            answer = connection.getresponse()
            body = json.loads(answer.read())
            connection.close()
            return answer.status, body

        yield get
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def reader(admin: Kube) -> None:
    """Two accounts: `reader` may get NodeFabrics, `stranger` may not."""
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": n}}
        for n in ("reader", "stranger")
    ]
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["paceline.dev"], "resources": ["nodefabrics"], "verbs": ["get"]}
    meta = {"name": "fabric-reader"}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": [rule]}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "fabric-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    admin.kubectl(
        "apply", "-n", "default", "-f", "-", stdin=yaml.safe_dump_all([*accounts, role, binding])
    )


def test_only_whoever_may_read_the_fabric_reads(admin: Kube, reader: None, get: Get) -> None:
    assert get("/v1/fabric")[0] == 401
    assert get("/v1/fabric", "forged")[0] == 401
    # Good for the API server, and so not for us: we could use it there.
    assert get("/v1/fabric", token(admin, "default", "reader"))[0] == 401
    status, answer = get("/v1/fabric", token(admin, "default", "stranger", audiences=[AUDIENCE]))
    assert (status, "nodefabrics" in str(answer["error"])) == (403, True)

    ours = token(admin, "default", "reader", audiences=[AUDIENCE])
    # The rights that were just given reach the authorizer a moment later.
    admin.wait("the first probe has ended", lambda: get("/v1/fabric", ours)[0] == 200)
    status, fabric = get("/v1/fabric", ours)
    assert (status, fabric["node"]) == (200, "one"), fabric
    status, checks = get("/v1/checks", ours)
    assert (status, checks["node"]) == (200, "one"), checks
    told = subprocess.run(
        [AGENT.parent / "paceline", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    assert [check["id"] for check in checks["checks"]] == [
        check["id"] for check in json.loads(told.stdout)["checks"]
    ]


def paceline(*words: str) -> tuple[int, str]:
    """Exit code and what it says."""
    told = subprocess.run(
        [AGENT.parent / "paceline", *words], capture_output=True, text=True, check=False
    )
    return told.returncode, told.stdout + told.stderr


def test_doctor_and_fabric_look_at_a_node_of_the_cluster(
    admin: Kube, reader: None, get: Get, tmp_path: Path
) -> None:
    cluster = f"--kubeconfig={admin.kubeconfig}"
    admin.wait(
        "the node is published", lambda: "status" in (admin.find("nodefabrics", "", "one") or {})
    )
    conditions = admin.get("nodefabrics", "", "one")["status"]["conditions"]
    bad = [each["type"] for each in conditions if each["status"] == "False"]
    code, text = paceline("doctor", "--node=one", cluster)
    assert (code, f"conditions of one: {len(bad)} fail" in text) == (1 if bad else 0, True), text
    code, text = paceline("fabric", "--node=one", cluster, "--json")
    assert (code, json.loads(text)["conditions"]) == (0, conditions)
    code, text = paceline("doctor", "--node=none", cluster)
    assert (code, "there is no NodeFabric none" in text) == (2, True), text

    port = re.search(r"/v1/checks on port (\d+)", (tmp_path / "agent.log").read_text())
    assert port
    file = tmp_path / "token"
    agent = [
        "--node=one",
        f"--agent=https://127.0.0.1:{port[1]}",
        f"--agent-ca={tmp_path / 'tls.crt'}",
    ]
    for account, known in (("reader", True), ("stranger", False)):
        bearer = token(admin, "default", account, audiences=[AUDIENCE])
        file.write_text(bearer)
        code = 200 if known else 403
        admin.wait(
            f"the first probe has ended, and {account} gets {code}",
            lambda bearer=bearer, code=code: get("/v1/checks", bearer)[0] == code,
        )
        code, text = paceline("doctor", *agent, f"--agent-token={file}", "--json")
        assert (code < 2) == known, text
        if known:
            checks = json.loads(text)
            assert (checks["node"], code) == ("one", 1 if checks["failed"] else 0)


def test_a_renewed_certificate_is_shown_at_once(
    admin: Kube, reader: None, get: Get, tmp_path: Path
) -> None:
    ours = token(admin, "default", "reader", audiences=[AUDIENCE])
    admin.wait("the first probe has ended", lambda: get("/v1/checks", ours)[0] == 200)
    certify(tmp_path)
    assert get("/v1/checks", ours)[0] == 200  # trusts nothing but the new one
