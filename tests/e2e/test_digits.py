# SPDX-License-Identifier: Apache-2.0
"""The example on real parts: kubectl apply of examples/digits-ddp.yaml, real PyTorch in the pods,
and what people see.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from jobs import LAUNCHER_PORT, JobHandle
from kube import Kube
from testbed import BUILD, ROOT, Operator, run

EXAMPLE = ROOT / "examples" / "digits-ddp.yaml"
RANKS = 4


def fetch_metrics(handle: JobHandle) -> str:
    """The launchers' /metrics of every pod that serves it, together."""
    texts = []
    for pod in handle.pods():
        address = pod["status"].get("podIP")
        if not address:
            continue
        try:
            with urllib.request.urlopen(
                f"http://{address}:{LAUNCHER_PORT}/metrics", timeout=5
            ) as answer:
                texts.append(answer.read().decode())
        except OSError:
            continue
    return "\n".join(texts)


def ready(operator: Operator) -> None:
    if not operator.running():
        operator.start()
    operator.wait_ready()


def test_digits(kube: Kube, operator: Operator, namespace: str, pytorch_image: None) -> None:
    """The example as it comes trains to its end."""
    ready(operator)
    since = kube.listing("trainingjobs", namespace)["metadata"]["resourceVersion"]
    pods_since = kube.listing("pods", namespace)["metadata"]["resourceVersion"]
    kube.kubectl("apply", "-n", namespace, "-f", str(EXAMPLE))
    handle = JobHandle(kube, namespace, "digits-ddp")

    began = time.monotonic()
    handle.wait_phase("Running")
    assert len(handle.pods()) == 2
    jobs_seen = kube.history("trainingjobs", namespace, since)
    pods_seen = kube.history("pods", namespace, pods_since)
    print(f"running {time.monotonic() - began:.1f} s after apply")

    status = handle.wait_phase("Succeeded", timeout=400)
    print(f"succeeded {time.monotonic() - began:.1f} s after apply")
    log = kube.logs(namespace, "digits-ddp-worker-0-0")
    accuracy = re.search(r"accuracy: (0\.\d+|1\.0*)\s*$", log, re.MULTILINE)
    assert accuracy, log[-2000:]
    assert float(accuracy.group(1)) >= 0.95
    assert status["restarts"] == 0
    assert sum(status["training"]["breakdown"].values()) in range(980, 1021), status["training"]
    # cleanPodPolicy Running: what ended by itself stays for its logs.
    ended = ["Succeeded", "Succeeded"]
    kube.wait(
        "both pods end well",
        lambda: [p["status"]["phase"] for p in handle.pods()] == ended,
        namespace,
    )
    check_start(jobs_seen, pods_seen)


def test_people_see_the_example_train(
    kube: Kube, operator: Operator, namespace: str, pytorch_image: None, tmp_path: Path
) -> None:
    """The example trains until the test has seen it: the columns of kubectl, /metrics, and
    `paceline`'s pages.
    """
    ready(operator)
    job = yaml.safe_load(EXAMPLE.read_text())
    (container,) = job["spec"]["roles"][0]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["--epochs", "20"], container["args"]
    container["args"][1] = "100000"
    kube.create("trainingjobs", namespace, job)
    handle = JobHandle(kube, namespace, "digits-ddp")
    handle.wait_phase("Running")

    def measured() -> bool:
        ranks = set(
            re.findall(
                r'^paceline_step_phase_seconds_total\{[^}]*\brank="(\d+)"',
                fetch_metrics(handle),
                re.MULTILINE,
            )
        )
        return ranks == {str(rank) for rank in range(RANKS)}

    kube.wait("every rank has its step phases in /metrics", measured, namespace, poll=1)
    check_with_promtool(handle)

    def columns() -> dict[str, str]:
        """`kubectl get trainingjobs`, by its own columns."""
        header, row = kube.kubectl("get", "trainingjobs", "-n", namespace).splitlines()
        starts = [match.start() for match in re.finditer(r"(?<!\S)\S+(?: \S+)*", header)]
        names = re.findall(r"\S+(?: \S+)*", header)
        ends = [*starts[1:], len(row)]
        return {name: row[a:b].strip() for name, a, b in zip(names, starts, ends, strict=True)}

    def complete() -> Any:
        row = columns()
        filled = all(row[name] for name in ("STEP", "STEP TIME", "BOTTLENECK"))
        return row if filled and int(row["STEP"]) > 0 else None

    row = kube.wait("the columns are filled", complete, namespace, poll=1)
    print(row)
    assert row["RESTARTS"] == "0"
    assert re.fullmatch(r"[0-9.]+(us|ms|s)", row["STEP TIME"])
    check_watching(kube, namespace, tmp_path)
    handle.delete()


def check_watching(kube: Kube, namespace: str, folder: Path) -> None:
    """What `paceline` tells of the running job: by its status, and by exec in rank 0's pod."""
    program = str(BUILD / "bin" / "paceline")
    cluster = ("--kubeconfig", str(kube.kubeconfig), "-n", namespace)
    (listed,) = json.loads(run([program, "top", "-o", "json", *cluster]))["jobs"]
    assert (listed["name"], listed["phase"], listed["ranks"]) == ("digits-ddp", "Running", RANKS)
    said = json.loads(run([program, "explain", "job/digits-ddp", "-o", "json", *cluster]))
    ranks = [rank["rank"] for rank in said["job"]["training"]["ranks"]]
    assert ranks == list(range(RANKS)), said
    assert "What limits it" in [section["title"] for section in said["sections"]]
    page = folder / "report.html"
    run([program, "report", "job/digits-ddp", "-o", str(page), *cluster])
    assert f"rank {RANKS - 1}: forward" in page.read_text()


def check_with_promtool(handle: JobHandle) -> None:
    assert shutil.which("promtool"), (
        "promtool is missing: scripts/setup installs it (package prometheus)"
    )
    pod = handle.pods()[0]
    with urllib.request.urlopen(
        f"http://{pod['status']['podIP']}:{LAUNCHER_PORT}/metrics", timeout=60
    ) as answer:
        text = answer.read()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def check_start(jobs_seen: list[Any], pods_seen: list[Any]) -> None:
    """There is room, so the job is placed at once, and its pods are created without a gate."""
    told = [event["object"].get("status", {}) for event in jobs_seen]
    phases = [status["phase"] for status in told if status.get("phase")]
    assert phases[0] == "Starting" and phases[-1] == "Running", phases
    assert "Queued" not in phases, phases
    created = [event["object"] for event in pods_seen if event["type"] == "ADDED"]
    assert len(created) == 2
    assert not any(pod["spec"].get("schedulingGates") for pod in created)
