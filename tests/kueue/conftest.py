# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one cluster, one Kueue and one operator for the whole run; a namespace and a queue for
each test.

PACELINE_E2E_CLUSTER=keep takes a cluster that is already up, and leaves it: for work on the tests.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "cluster")]

from controller import Kueue  # noqa: E402
from jobs import JobHandle, own_namespace  # noqa: E402
from kube import Kube, Object  # noqa: E402
from kwok import running_kwok  # noqa: E402
from queues import POOL, Queue, make_flavor  # noqa: E402
from testbed import Cluster, Operator, own_cluster  # noqa: E402

KEEP = os.environ.get("PACELINE_E2E_CLUSTER") == "keep"
OPERATOR_FLAGS = ["--runtime-image", "paceline/runtime:dev", "--http-listen", "127.0.0.1:18080"]

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with own_cluster(["runtime", "busybox"], KEEP) as control:
        yield control


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    api = Kube(cluster.kubeconfig())
    api.kubectl("apply", "-f", str(ROOT / "crds"))
    for name in ("trainingjobs", "nodefabrics", "runtimeprofiles"):
        api.wait(f"{name} are served", lambda name=name: api.is_established(f"{name}.paceline.dev"))
    for node in api.list("nodes"):
        name = node["metadata"]["name"]
        api.patch("nodes", "", name, {"metadata": {"labels": {POOL: name}}})
    return api


@pytest.fixture(scope="session")
def kueue(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    program = shutil.which("kueue")
    assert program, "kueue is not on PATH: tests/cluster/build-tools --with-kueue builds it"
    process = Kueue(kube, Path(program).parent, tmp_path_factory.mktemp("kueue"))
    process.install()
    process.start()
    try:
        process.wait_ready()
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="session")
def kwok_controller(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with running_kwok(kube, tmp_path_factory.mktemp("kwok")):
        yield


@pytest.fixture(scope="session")
def flavor(kube: Kube, kueue: Kueue) -> str:
    """A flavor of one node, so that pods elsewhere are noticed."""
    return make_flavor(kube, "second", nodeLabels={POOL: "node-2"})


@pytest.fixture(scope="session")
def operator(
    kube: Kube, kueue: Kueue, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    process = Operator(kube.kubeconfig, tmp_path_factory.mktemp("operator"), OPERATOR_FLAGS)
    process.start()
    process.wait_ready()
    yield process
    assert process.stop() == 0, process.tail()


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    with own_namespace(kube, f"kueue-{os.getpid()}-{next(numbers)}") as name:
        yield name


@pytest.fixture
def queue(kube: Kube, flavor: str, namespace: str) -> Iterator[Queue]:
    """A queue of the test's own; the test creates it with its quota."""
    made = Queue(kube, namespace, flavor)
    yield made
    made.delete()


@pytest.fixture
def submit(kube: Kube, operator: Operator, namespace: str) -> Callable[[Object], JobHandle]:
    """Creates a job in the test's namespace."""

    def create(body: Object) -> JobHandle:
        made = kube.create("trainingjobs", namespace, body)
        return JobHandle(kube, namespace, made["metadata"]["name"])

    return create


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, None]:
    """Shows the state of the test's namespace and the last words of both controllers with a
    failure.
    """
    outcome = yield
    report = outcome.get_result()
    given = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and {"namespace", "kube"} <= given.keys():
        report.sections.append(("namespace", given["kube"].describe(given["namespace"])))
        report.sections += [
            (name, given[name].tail()) for name in ("operator", "kueue") if name in given
        ]
