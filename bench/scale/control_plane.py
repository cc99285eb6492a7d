# SPDX-License-Identifier: Apache-2.0
"""etcd, kube-apiserver, kube-scheduler, the garbage collector and KWOK, on free ports of this
machine. All of it ends with this process, also if it is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from kube import Kube
from ports import free_port
from testcluster.certificates import Authority

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAMESPACE = "paceline-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:paceline-operator"
PR_SET_PDEATHSIG = 1

# What the operator asks of the API server, and nothing of others.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [OPERATOR]}, {"level": "None"}],
}


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for(what: str, ready: Callable[[], bool], patience_s: float = 60) -> None:
    until = time.monotonic() + patience_s
    while not ready():
        if time.monotonic() > until:
            raise SystemExit(f"scale: {what}: not within {patience_s:.0f} s")
        time.sleep(0.2)


class ControlPlane:
    """Started by `start`; `stop` ends all of it. `folder` holds its data and logs."""

    def __init__(self, tools: Path, folder: Path) -> None:
        self.tools = tools
        self.folder = folder
        self.audit_log = folder / "audit.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        port = free_port()
        self._port = port
        self._authority = Authority(folder / "pki", f"https://127.0.0.1:{port}")

    def start(self) -> Kube:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._authority.create()
        self._authority.issue_server()
        admin = self._authority.kubeconfig("admin", "/O=system:masters/CN=admin")
        self._start_api_server(self._start_etcd())
        kube = Kube(admin)
        wait_for("the API server is ready", kube.alive)
        self._start_scheduler()
        self.start_controllers("garbage-collector-controller")
        self.run(
            "kwok",
            f"--kubeconfig={admin}",
            f"--config={HERE / 'stages.yaml'}",
            "--manage-all-nodes=true",
            # Addresses that are set aside for benchmarks: no launcher ever answers there.
            "--cidr=198.18.0.0/15",
            "--node-lease-duration-seconds=0",
            f"--server-address=127.0.0.1:{free_port()}",
        )
        return kube

    def run(self, name: str, *arguments: str, tool: str = "") -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [tool or str(self.tools / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
                preexec_fn=end_with_parent,
            )
        self._processes.append(process)
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end of a process that was asked to end."""
        process.wait()
        self._processes.remove(process)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()

    def check(self) -> None:
        """Ends the benchmark if one of its parts has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise SystemExit(f"scale: {process.args!r} ended; logs: {self.folder}")

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.run(
            "etcd",
            "--name=scale",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync=true",
            "--quota-backend-bytes=8589934592",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=scale={peer}",
        )
        return client

    def _start_api_server(self, etcd: str) -> None:
        pki = self.folder / "pki"
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        self.run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.79.0.0/16",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--service-account-key-file={pki / 'service-account.key'}",
            f"--service-account-signing-key-file={pki / 'service-account.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            # No controller makes service accounts for pods, and none lifts the taint of new nodes.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
        )

    def _start_scheduler(self) -> None:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(
                    self._authority.kubeconfig("scheduler", "/CN=system:kube-scheduler")
                ),
                # Its default of 50 bindings a second would be the measure of everything.
                "qps": 5000,
                "burst": 5000,
            },
        }
        file = self.folder / "scheduler.json"
        file.write_text(json.dumps(config))
        self.run("kube-scheduler", f"--config={file}", "--secure-port=0")

    def start_controllers(self, controllers: str) -> None:
        kubeconfig = self._authority.kubeconfig("controllers", "/O=system:masters/CN=controllers")
        self.run(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--controllers={controllers}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=5000",
            "--kube-api-burst=5000",
        )


def install(kube: Kube, tools: Path) -> None:
    """What the chart gives the operator: CRDs, account, rights, priorities and flow control."""
    kube.kubectl("create", "-f", str(ROOT / "crds"))
    rendered = subprocess.run(
        [str(tools / "helm"), "template", "paceline", str(ROOT / "helm" / "paceline")]
        + ["--namespace", NAMESPACE],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    items: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (NAMESPACE, "paceline-agents")
    ]
    running = {"Deployment", "DaemonSet", "Namespace", "CustomResourceDefinition"}
    items += [item for item in yaml.safe_load_all(rendered) if item and item["kind"] not in running]
    kube.kubectl(
        *("create", "-f", "-"),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
    )
    definitions = ("trainingjobs", "runtimeprofiles", "nodefabrics")
    wait_for(
        "the custom resources are served",
        lambda: all(kube.is_established(f"{name}.paceline.dev") for name in definitions),
    )


def operator_kubeconfig(kube: Kube, folder: Path) -> Path:
    """A kubeconfig of the operator's service account, so that it has the chart's rights alone."""
    token = kube.kubectl(
        "create", "token", "paceline-operator", "-n", NAMESPACE, "--duration=2h"
    ).strip()
    view = json.loads(
        kube.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
    )
    view["users"][0]["user"] = {"token": token}
    file = folder / "operator.kubeconfig"
    file.write_text(json.dumps(view))
    return file
