# SPDX-License-Identifier: Apache-2.0
"""The nodes, jobs and pods of the benchmark, and who watches them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from control_plane import ControlPlane
from kube import Kube

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release")) / "bin"
FOLDER = ROOT / "build" / "scale"
PATIENCE_S = 900
RACK = 16  # nodes
ZONE = 1000
Item = TypeVar("Item")


@dataclass
class Sizes:
    nodes: int
    jobs: int
    pods: int
    large: int


@dataclass
class Bench:
    plane: ControlPlane
    kube: Kube
    sizes: Sizes
    idle_s: int
    result: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)

    def row(self, what: str, key: str, value: float, unit: str) -> None:
        self.result[key] = round(value, 3)
        self.rows.append((what, f"{value:,.{0 if value >= 100 else 3}f} {unit}"))
        print(f"{what}: {self.rows[-1][1]}", flush=True)


def node(index: int) -> dict[str, Any]:
    name = f"node-{index:05}"
    resources = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{index // ZONE}",
        "example.com/rack": f"rack-{index // RACK:03}",
    }
    status = {
        "phase": "Running",
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


def job(name: str, pods: int, gpus: int) -> dict[str, Any]:
    container = {
        "name": "trainer",
        "image": "example/none:1",
        "command": ["/bin/true"],
        "resources": {
            "requests": {"cpu": "4", "memory": "16Gi"},
            "limits": {"nvidia.com/gpu": str(gpus)},
        },
    }
    role = {"name": "worker", "replicas": pods, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"framework": {"type": "Custom"}, "roles": [role]},
    }


def in_parallel(kube: Kube, items: list[Item], work: Callable[[Kube, Item], object]) -> None:
    """What is measured is not how fast a client in Python asks."""
    connections = 4

    def share(start: int) -> None:
        own = kube.again()
        for item in items[start::connections]:
            work(own, item)
        own.close()

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(share, range(connections)))


def create_all(kube: Kube, kind: str, namespace: str, items: list[dict[str, Any]]) -> None:
    in_parallel(kube, items, lambda own, item: own.create(kind, namespace, item))


class Observer:
    """One watch of a namespace's pods, until all of them are there, run, or are gone."""

    def __init__(self, namespace: str, pods: int, until: str) -> None:
        command: list[str | Path] = [BIN / "gang_writes", "--namespace", namespace, "--jobs", "1"]
        command += ["--pods", str(pods), "observe", "--until", until, "--timeout", str(PATIENCE_S)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "watching":
            raise SystemExit("scale: the observer did not start")

    def wait(self, plane: ControlPlane) -> dict[str, float]:
        while self._process.poll() is None:
            plane.check()
            time.sleep(0.1)
        answer, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise SystemExit(f"scale: not all pods were seen; logs: {FOLDER}")
        return dict(json.loads(answer))
