# SPDX-License-Identifier: Apache-2.0
"""The processes of the cluster, by what they are, and the signs of life of its parts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from kube import Kube, Object
from testbed import Cluster
from testcluster.control_plane import RUN

SYSTEM = "paceline-system"
AGENTS = "paceline-agents"

Renewed = Callable[[], str]


def daemon(name: str) -> int:
    """The process of a daemon that tests/cluster started."""
    return int((RUN / "pids" / name).read_text())


def container(cluster: Cluster, pod: Object) -> int:
    """The first process of a pod's first container."""
    full = pod["status"]["containerStatuses"][0]["containerID"]
    name = full.removeprefix("containerd://")
    table = cluster.on_node(pod["spec"]["nodeName"], "ctr", "-n", "k8s.io", "tasks", "ls")
    found = [line.split() for line in table.splitlines() if line.startswith(name)]
    assert found, f"no container {name}:\n{table}"
    return int(found[0][1])


def below(parent: int) -> list[int]:
    """A process's children, and theirs."""
    told = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [pid for child in map(int, told) for pid in (child, *below(child))]


def rank_of(launcher: int, rank: int) -> int:
    """The process of one rank."""
    for pid in below(launcher):
        if f"RANK={rank}" in Path(f"/proc/{pid}/environ").read_text().split("\0"):
            return pid
    raise AssertionError(f"launcher {launcher} has no rank {rank}")


def memory(pid: int) -> float:
    """What a process has in memory, in MiB."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) / 1024


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def leader(kube: Kube) -> Object:
    """The pod of the operator that leads."""
    lease = kube.get("leases", SYSTEM, "paceline-operator")
    return kube.get("pods", SYSTEM, lease["spec"]["holderIdentity"])


def agent_on(kube: Kube, node: str) -> Object:
    pods = kube.list("pods", AGENTS, fieldSelector=f"spec.nodeName={node}")
    assert len(pods) == 1, [pod["metadata"]["name"] for pod in pods]
    return pods[0]


def renewals(kube: Kube, namespace: str, name: str) -> Renewed:
    """Tells when a Lease was renewed last."""
    return lambda: kube.get("leases", namespace, name)["spec"]["renewTime"]
