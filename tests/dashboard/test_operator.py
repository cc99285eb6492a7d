# SPDX-License-Identifier: Apache-2.0
"""Every query of the operator's dashboard returns data on a real Prometheus that scrapes a real
operator, and /debug/jobs says why its jobs wait. The API server is ours, in memory; no kubelet
starts the pods.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from drawing import draw, drawing
from panels import ROOT, finite, load, queries
from ports import free_port
from prometheus import Prometheus

BUILD = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
DASHBOARD = load("paceline-operator")
WINDOW_S = 20
JOBS = 6
JOBS_PATH = "/apis/paceline.dev/v1alpha1/namespaces/default/trainingjobs"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: none}}}}]
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: none, user: {{}}}}]
"""


def send(port: int, method: str, path: str, document: Any = None) -> tuple[int, Any]:
    """The status and the document of an answer, whatever it is."""
    kind = "merge-patch+json" if method == "PATCH" else "json"
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        data=None if document is None else json.dumps(document).encode(),
        headers={"Content-Type": f"application/{kind}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def add_node(port: int, name: str, cpu: int) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    status = {
        "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    assert send(port, "POST", "/api/v1/nodes", node)[0] == 201
    assert send(port, "PATCH", f"/api/v1/nodes/{name}/status", {"status": status})[0] == 200


def add_job(port: int, name: str) -> None:
    trainer = {
        "name": "trainer",
        "image": "none",
        "command": ["train"],
        "resources": {"requests": {"cpu": 1}},
    }
    role = {"name": "w", "replicas": 2, "template": {"spec": {"containers": [trainer]}}}
    spec = {"framework": {"type": "Custom", "processesPerReplica": 1}, "roles": [role]}
    job = {"apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob", "spec": spec}
    answer = send(port, "POST", JOBS_PATH, {**job, "metadata": {"name": name}})
    assert answer[0] == 201, answer


@dataclass
class Run:
    prometheus: Prometheus
    debug: int  # port
    start: float
    end: float

    def series(self, expression: str) -> list[dict[str, Any]]:
        expression = expression.replace("$__rate_interval", f"{WINDOW_S}s")
        return self.prometheus.range(expression, self.start, self.end)


def wait_until(what: str, ready: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline, f"no {what} after 60 s:\n{log.read_text()[-3000:]}"
        time.sleep(0.3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    server = subprocess.Popen(
        [str(BUILD / "bin" / "paceline_test_api_server")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout
    assert server.stdin
    api = int(server.stdout.readline())
    folder = tmp_path_factory.mktemp("operator")
    (folder / "kubeconfig").write_text(KUBECONFIG.format(port=api))
    port, debug = free_port(), free_port()
    log = folder / "operator.log"
    command = [str(BUILD / "bin" / "paceline-operator"), "--kubeconfig", str(folder / "kubeconfig")]
    command += ["--http-listen", f"127.0.0.1:{port}", "--identity", "operator-0"]
    command += ["--debug-listen", f"127.0.0.1:{debug}"]
    with Prometheus(folder, [f"127.0.0.1:{port}"]) as prometheus, log.open("w") as output:
        operator = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            start = time.time()

            def holds(expression: str) -> Callable[[], Any]:
                return lambda: prometheus.ask("query", query=expression)["result"]

            wait_until("leader", holds("paceline_operator_leading == 1"), log)
            # One node takes two jobs, and the others wait.
            add_node(api, "n0", 4)
            for number in range(JOBS):
                add_job(api, f"j{number}")
                time.sleep(1)
            waiting = holds("sum(paceline_operator_waiting_jobs) == 4")
            wait_until("waiting jobs", waiting, log)
            time.sleep(WINDOW_S / 2)  # the last points show no job on its way to a reason
            wait_until("waiting jobs at the end", waiting, log)
            yield Run(prometheus, debug, start, time.time())
        finally:
            operator.terminate()
            operator.wait(30)
            server.stdin.close()
            server.wait(30)


@pytest.mark.parametrize(
    ("name", "expression"), queries(DASHBOARD), ids=[name for name, _ in queries(DASHBOARD)]
)
def test_query_returns_data(run: Run, name: str, expression: str) -> None:
    series = run.series(expression)
    assert series, f"{name}: no series for {expression}"
    assert any(finite(one) for one in series), f"{name}: only NaN for {expression}"


def test_waiting_jobs_are_counted_by_reason(run: Run) -> None:
    (expression,) = [text for name, text in queries(DASHBOARD) if name == "Waiting jobs A"]
    last = {
        tuple(one["metric"].values()): finite(one)[-1]
        for one in run.series(expression)
        if float(one["values"][-1][0]) > run.end - 4
    }
    assert last == {("default", "WaitingForRoom"): 4}


def test_panels_are_drawn(run: Run, tmp_path: Path) -> None:
    panels = DASHBOARD["panels"]
    content = drawing(panels, lambda _, expression: run.series(expression), run.start, run.end)
    folder = Path(os.environ.get("PACELINE_PICTURES", tmp_path))
    draw(content, folder / "dashboard-operator.png")


def test_debug_says_why_a_job_waits(run: Run) -> None:
    code, page = send(run.debug, "GET", f"/debug/jobs/default/j{JOBS - 1}")
    assert code == 200, page
    assert page["reason"] == "WaitingForRoom"
    assert [item["what"] for item in page["waitsFor"]] == ["room"]
    assert page["queue"]["before"] == [f"default/j{number}" for number in range(2, JOBS - 1)]
    assert page["operator"] == {"leading": True, "leader": "operator-0"}
    code, page = send(run.debug, "GET", "/debug/jobs/default/none")
    assert code == 404
    assert "default/none" in page["error"]
