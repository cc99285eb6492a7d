# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one cluster and one operator for the whole run, each of the other schedulers for the
tests that it has a part in, and a namespace for each test.

PACELINE_CLUSTER_PROFILE chooses the cluster's Kubernetes, and with it the schedulers.
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

from jobs import JobHandle, own_namespace  # noqa: E402
from kube import GROUPS, Kube, Object  # noqa: E402
from scheduler import HERE, KINDS, PROFILE, Scheduler  # noqa: E402
from testbed import Cluster, Operator, own_cluster  # noqa: E402

KEEP = os.environ.get("PACELINE_E2E_CLUSTER") == "keep"
OPERATOR_FLAGS = ["--runtime-image", "paceline/runtime:dev", "--http-listen", "127.0.0.1:18080"]

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with own_cluster(["runtime", "busybox"], KEEP, PROFILE) as control:
        yield control


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    api = Kube(cluster.kubeconfig())
    api.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    for name in ("trainingjobs", "nodefabrics", "runtimeprofiles"):
        api.wait(f"{name} are served", lambda name=name: api.is_established(f"{name}.paceline.dev"))
    return api


@pytest.fixture(scope="session")
def operator(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    process = Operator(kube.kubeconfig, tmp_path_factory.mktemp("operator"), OPERATOR_FLAGS)
    process.start()
    process.wait_ready()
    yield process
    assert process.stop() == 0, process.tail()


@pytest.fixture(scope="session", params=HERE)
def scheduler(
    request: pytest.FixtureRequest, kube: Kube, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scheduler]:
    kind = KINDS[request.param]
    program = shutil.which(kind.program)
    assert program, f"no {kind.program} on PATH: scripts/test schedulers builds it"
    process = Scheduler(kube, kind, Path(program), tmp_path_factory.mktemp(kind.program))
    process.install()
    GROUPS["podgroups"] = kind.api
    process.start()
    yield process
    process.stop()


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    with own_namespace(kube, f"schedulers-{os.getpid()}-{next(numbers)}") as name:
        yield name


@pytest.fixture
def submit(
    kube: Kube, operator: Operator, scheduler: Scheduler, namespace: str
) -> Callable[[Object], JobHandle]:
    """Creates a job of the scheduler in the test's namespace."""

    def create(body: Object) -> JobHandle:
        body["spec"].setdefault("scheduling", {}).setdefault("backend", scheduler.kind.backend)
        made = kube.create("trainingjobs", namespace, body)
        return JobHandle(kube, namespace, made["metadata"]["name"])

    return create


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, Any, None]:
    """Shows the state of the test's namespace and the last words of the programs with a failure."""
    outcome = yield
    report = outcome.get_result()
    given = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and {"namespace", "kube"} <= given.keys():
        report.sections.append(("namespace", given["kube"].describe(given["namespace"])))
        report.sections += [
            (name, given[name].tail()) for name in ("operator", "scheduler") if name in given
        ]
