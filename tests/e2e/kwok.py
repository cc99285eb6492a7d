# SPDX-License-Identifier: Apache-2.0
"""Nodes without machines: node objects that KWOK's controller keeps ready, and whose pods it runs.

A pod that is bound there is Running at once, with an address where nothing answers. A deleted one
is gone at once.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube import Kube
from testbed import ROOT

STAGES = ROOT / "bench" / "scale" / "stages.yaml"
MANAGED = {"kwok.x-k8s.io/node": "fake"}


def add_node(kube: Kube, name: str, labels: dict[str, str], room: dict[str, str]) -> None:
    """`room`: what the node offers to pods."""
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name, **labels},
        "annotations": MANAGED,
    }
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    kube.create("nodes", "", {"metadata": metadata, "status": status})


@contextmanager
def running_kwok(kube: Kube, folder: Path) -> Iterator[None]:
    """Its controller as a process of this machine; it manages the nodes of `add_node` alone."""
    program = shutil.which("kwok")
    assert program, "kwok is not on PATH: tests/cluster/build-tools --with-kwok builds it"
    ((selector, value),) = MANAGED.items()
    command = ["setpriv", "--pdeathsig", "KILL", program, f"--kubeconfig={kube.kubeconfig}"]
    command += [f"--config={STAGES}"]
    command += [f"--manage-nodes-with-annotation-selector={selector}={value}"]
    # The test cluster counts a node as lost 8 s after its last sign of life; a lease is renewed in
    # a quarter of its duration.
    command += ["--node-lease-duration-seconds=8"]
    # Addresses that are set aside for benchmarks: no launcher ever answers there.
    command += ["--cidr=198.18.0.0/15"]
    with (folder / "kwok.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.poll() is None, f"KWOK ended with {process.returncode}: {folder}/kwok.log"
    finally:
        process.kill()
        process.wait()
