# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one cluster of three nodes with the chart installed, a namespace for each case, and the
record of the cases that passed.

PACELINE_E2E_CLUSTER=keep takes a cluster that is already up and has the images, and leaves it: for
work on the tests.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "cluster")]

import outcomes  # noqa: E402
from jobs import own_namespace  # noqa: E402
from kube import Kube  # noqa: E402
from parts import AGENTS, SYSTEM  # noqa: E402
from testbed import BUILD, Cluster, run  # noqa: E402

KEEP = os.environ.get("PACELINE_E2E_CLUSTER") == "keep"
IMAGES = ["runtime", "busybox", "operator", "agent"]
NODES = 3
CHART = str(ROOT / "helm" / "paceline")

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    control = Cluster()
    if KEEP:
        yield control
        return
    run([str(ROOT / "scripts" / "images"), "pause", *IMAGES], timeout=900)
    control.call("up", f"--nodes={NODES}", "--owner", str(os.getpid()))
    try:
        archives = [str(ROOT / "build" / "images" / f"{name}.tar") for name in IMAGES]
        control.call("load-image", *archives, timeout=600)
        yield control
    finally:
        control.call("down")


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    return Kube(cluster.kubeconfig())


@pytest.fixture(scope="session")
def helm(kube: Kube) -> Iterator[Callable[..., None]]:
    """Installs the chart, or changes its values."""
    words = ["helm", "--kubeconfig", str(kube.kubeconfig), "--namespace", SYSTEM]

    def install(*values: str) -> None:
        try:
            options = ["--install", "--create-namespace", "--wait", "--timeout=180s", *values]
            run([*words, "upgrade", "paceline", CHART, *options], 200)
        except AssertionError as error:
            state = f"{kube.describe(SYSTEM)}\n{kube.describe(AGENTS)}"
            raise AssertionError(f"{error}\n{state}") from None

    try:
        yield install
    finally:
        run([*words, "uninstall", "paceline", "--wait", "--ignore-not-found"], 90)


@pytest.fixture
def operators(kube: Kube, helm: Callable[..., None]) -> Callable[[int], None]:
    """Runs that many operators, none of which was killed before: the kubelet would wait longer
    before it starts one again.
    """

    def fresh(replicas: int) -> None:
        helm(f"--set=operator.replicas={replicas}")
        old = set(_operators(kube))
        for name in old:
            kube.delete("pods", SYSTEM, name)
        kube.wait(
            f"{replicas} new operators are ready, and one leads",
            functools.partial(_renewed, kube, old, replicas),
            SYSTEM,
        )

    return fresh


def _operators(kube: Kube) -> dict[str, bool]:
    """Names of the operator's pods, and whether each is ready."""
    selector = "app.kubernetes.io/component=operator"
    return {
        pod["metadata"]["name"]: any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions", [])
        )
        for pod in kube.list("pods", SYSTEM, labelSelector=selector)
    }


def _renewed(kube: Kube, old: set[str], replicas: int) -> bool:
    now = _operators(kube)
    lease = kube.find("leases", SYSTEM, "paceline-operator")
    leads = lease is not None and lease["spec"]["holderIdentity"] in now
    return leads and not old & set(now) and list(now.values()) == [True] * replicas


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    with own_namespace(kube, f"reliability-{os.getpid()}-{next(numbers)}") as name:
        yield name


@pytest.fixture(scope="session")
def record() -> Iterator[outcomes.Measured]:
    """Takes what a case measured. Cases that fail leave their earlier figures in the record."""
    measured = outcomes.Measured()
    yield measured
    from test_reliability import CASES

    facts = {
        "date": time.strftime("%Y-%m-%d"),
        "nodes": NODES,
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),
        "build": BUILD.name,
    }
    if measured.cases:
        outcomes.write([case.name for case in CASES], measured, facts)
