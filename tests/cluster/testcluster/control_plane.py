# SPDX-License-Identifier: Apache-2.0
"""etcd, kube-apiserver, controller-manager, scheduler and CoreDNS, all in the fabric's network
namespace.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from . import cgroups
from .certificates import Authority
from .network import in_fabric
from .state import (
    API_ADDRESS,
    API_URL,
    CONTROL_CGROUP,
    DATA,
    DNS_ADDRESS,
    RUN,
    SERVICE_RANGE,
    ClusterError,
    State,
    run,
)

PKI = RUN / "pki"
KUBECONFIG = PKI / "admin.kubeconfig"
LOGS = RUN / "logs"
COREFILE = RUN / "Corefile"
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
# What each program of another Kubernetes is given beside the usual. Its PodGroups are a beta API
# behind a feature gate.
GANGS = "--feature-gates=GenericWorkload=true"
PROFILES: dict[str, dict[str, list[str]]] = {
    "1.37": {
        "kube-apiserver": [GANGS, "--runtime-config=scheduling.k8s.io/v1beta1=true"],
        "kube-controller-manager": [GANGS],
        "kube-scheduler": [GANGS],
    }
}


def wait_until(
    what: str, ready: Callable[[], bool], patience_s: float, log: Path | None = None
) -> None:
    until = time.monotonic() + patience_s
    while not ready():
        if time.monotonic() > until:
            said = (
                f"\n{log}:\n{log.read_text(errors='replace')[-3000:]}"
                if log and log.exists()
                else ""
            )
            raise ClusterError(f"{what}: not within {patience_s:.0f} s{said}")
        time.sleep(0.1)


def start_daemon(name: str, cgroup: str, command: list[str]) -> int:
    """Starts a daemon that outlives this program, in its cgroup from its first instruction; returns
    its pid.
    """
    log = LOGS / f"{name}.log"
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: cgroups.enter(cgroup),
            cwd="/",
            env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "GOGC": "200"},
        )
    (RUN / "pids").mkdir(exist_ok=True)
    (RUN / "pids" / name).write_text(str(daemon.pid))
    return daemon.pid


def kubectl(state: State, *arguments: str, data: str | None = None) -> str:
    return run(state.tool("kubectl"), f"--kubeconfig={KUBECONFIG}", *arguments, data=data)


def api_is_ready() -> bool:
    context = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
    context.load_cert_chain(str(PKI / "admin.crt"), str(PKI / "admin.key"))
    try:
        with urllib.request.urlopen(f"{API_URL}/readyz", context=context, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def flags_of(state: State, program: str) -> list[str]:
    """Those that the cluster's profile adds."""
    return PROFILES[state.profile][program] if state.profile else []


def start_etcd(state: State) -> None:
    folder = DATA / "etcd"
    folder.mkdir(mode=0o700, exist_ok=True)
    peer, client = "http://127.0.0.1:2380", "http://127.0.0.1:2379"
    command = [
        state.tool("etcd"),
        "--name=paceline",
        f"--data-dir={folder}",
        "--unsafe-no-fsync=true",
    ]
    command += [
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        "--quota-backend-bytes=4294967296",
    ]
    command += [
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=paceline={peer}",
    ]
    start_daemon("etcd", CONTROL_CGROUP, in_fabric(*command))


def start_apiserver(state: State) -> None:
    def pki(name: str) -> str:
        return str(PKI / name)

    command = [
        state.tool("kube-apiserver"),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={API_ADDRESS}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={pki('ca.crt')}",
        f"--tls-cert-file={pki('apiserver.crt')}",
        f"--tls-private-key-file={pki('apiserver.key')}",
        f"--kubelet-client-certificate={pki('apiserver-kubelet.crt')}",
        f"--kubelet-client-key={pki('apiserver-kubelet.key')}",
        f"--service-account-key-file={pki('service-account.key')}",
        f"--service-account-signing-key-file={pki('service-account.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        # Without controllers nobody makes default service accounts, and pods could not be created.
        *(
            ["--disable-admission-plugins=ServiceAccount"]
            if state.nodes == 0
            else ["--enable-admission-plugins=NodeRestriction"]
        ),
    ]
    command += flags_of(state, "kube-apiserver")
    start_daemon("kube-apiserver", CONTROL_CGROUP, in_fabric(*command))
    wait_until("the API server", api_is_ready, 180, LOGS / "kube-apiserver.log")


def start_controller(state: State, name: str) -> None:
    """One of CONTROLLERS."""
    command = [state.tool(name), f"--kubeconfig={PKI / name}.kubeconfig", "--leader-elect=false"]
    if name == "kube-controller-manager":
        command += [
            f"--service-account-private-key-file={PKI / 'service-account.key'}",
            f"--root-ca-file={PKI / 'ca.crt'}",
            "--use-service-account-credentials=true",
            # 20 requests/s by default delay the first service accounts by seconds.
            *("--kube-api-qps=500", "--kube-api-burst=1000"),
            *("--node-monitor-grace-period=8s", "--node-monitor-period=1s"),
            "--horizontal-pod-autoscaler-sync-period=1s",
            f"--flex-volume-plugin-dir={RUN / 'flexvolume'}",
        ]
    command += flags_of(state, name)
    start_daemon(name, CONTROL_CGROUP, in_fabric(*command))


def start(state: State) -> None:
    """The control plane; with no nodes only etcd and the API server."""
    authority = Authority(PKI)
    authority.create()
    authority.issue_server()
    authority.issue("apiserver-kubelet", "/O=system:masters/CN=apiserver-kubelet")
    authority.kubeconfig("admin", "/O=system:masters/CN=admin")
    start_etcd(state)
    start_apiserver(state)
    if state.nodes == 0:
        return
    for name in CONTROLLERS:
        authority.kubeconfig(name, f"/CN=system:{name}")
        start_controller(state, name)
    _offer_dns(state, authority)
    wait_until(
        "the default service account",
        lambda: "default" in kubectl(state, "get", "serviceaccounts", "-o", "name"),
        60,
        LOGS / "kube-controller-manager.log",
    )


def start_dns(state: State) -> None:
    start_daemon("coredns", CONTROL_CGROUP, in_fabric(state.tool("coredns"), f"-conf={COREFILE}"))


def _offer_dns(state: State, authority: Authority) -> None:
    config = authority.kubeconfig("coredns", "/O=system:masters/CN=coredns")
    COREFILE.write_text(f""".:53 {{
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {config}
        pods insecure
        ttl 5
    }}
    cache 5
}}
""")
    start_dns(state)
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    service["spec"] = {"clusterIP": DNS_ADDRESS, "ports": ports}
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [API_ADDRESS], "conditions": {"ready": True}}],
        "ports": ports,
    }
    kubectl(
        state,
        "apply",
        "-f",
        "-",
        data=json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, endpoints]}),
    )
