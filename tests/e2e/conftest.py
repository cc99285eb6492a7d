# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one cluster and one operator for the whole run, one namespace for each test.

PACELINE_E2E_CLUSTER=keep takes a cluster that is already up, or leaves the one it brings up: for
work on the tests.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from jobs import JobHandle, own_namespace
from kube import Kube, Object
from testbed import CLUSTER, ROOT, Cluster, Operator, run

KEEP = os.environ.get("PACELINE_E2E_CLUSTER") == "keep"
IMAGES = ["runtime", "busybox", "operator", "agent"]
OPERATOR_FLAGS = ["--runtime-image", "paceline/runtime:dev", "--http-listen", "127.0.0.1:18080"]

numbers = itertools.count(1)


def archive(name: str) -> str:
    return str(ROOT / "build" / "images" / f"{name}.tar")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    assert os.access(CLUSTER, os.X_OK), f"{CLUSTER} is missing"
    control = Cluster()
    is_up = False
    if KEEP:
        try:
            control.call("status")
            is_up = True
        except AssertionError:
            pass
    if not is_up:
        run([str(ROOT / "scripts" / "images")], timeout=900)
        control.call("up", *([] if KEEP else ["--owner", str(os.getpid())]))
    try:
        if not is_up:
            control.call("load-image", *[archive(name) for name in IMAGES])
            control.begin(
                "load-image", archive("pytorch")
            )  # half a minute a node: beside the first tests
        yield control
    finally:
        control.finish()
        if not KEEP:
            control.call("down")


@pytest.fixture(scope="session")
def pytorch_image(cluster: Cluster) -> None:
    """The image with PyTorch is on every node."""
    cluster.finish()


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    api = Kube(cluster.kubeconfig())
    api.kubectl("apply", "-f", str(ROOT / "crds"))
    # Not kubectl wait: it takes a definition that has no condition yet for an error.
    for name in ("trainingjobs", "nodefabrics", "runtimeprofiles"):
        api.wait(
            f"{name} are served", functools.partial(api.is_established, f"{name}.paceline.dev")
        )
    return api


@pytest.fixture(scope="session")
def operator(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    process = Operator(kube.kubeconfig, tmp_path_factory.mktemp("operator"), OPERATOR_FLAGS)
    process.start()
    process.wait_ready()
    yield process
    assert process.stop() == 0, process.tail()


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    with own_namespace(kube, f"e2e-{os.getpid()}-{next(numbers)}") as name:
        yield name


@pytest.fixture
def submit(kube: Kube, operator: Operator, namespace: str) -> Callable[[Object], JobHandle]:
    """Creates a job in the test's namespace."""
    if not operator.running():
        operator.start()
    operator.wait_ready()

    def create(body: Object) -> JobHandle:
        made = kube.create("trainingjobs", namespace, body)
        return JobHandle(kube, namespace, made["metadata"]["name"])

    return create


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, None]:
    """Shows the state of the test's namespace and the operator's last words with a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        given = getattr(item, "funcargs", {})
        # Here, before the fixtures remove it: a section that a fixture adds at the end stands in no
        # report that is shown.
        if report.failed and "namespace" in given and "kube" in given:
            report.sections.append(("namespace", given["kube"].describe(given["namespace"])))
        if report.failed and "operator" in given:
            report.sections.append(("operator", given["operator"].tail()))
