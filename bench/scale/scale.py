# SPDX-License-Identifier: Apache-2.0
"""What the operator does with thousands of nodes: bench/scale/run [--scale FRACTION].

A real API server with etcd, scheduler and garbage collector; KWOK plays the kubelets of 5,000 nodes
with 8 GPUs each. 500 jobs of 20 pods are created, then one job of 2,048 pods that needs whole
nodes, then all are deleted at once. Two writers create the pods of 100 such jobs, as in
bench/gang_writes, and then Kubernetes' own Job controller does. The last line is JSON; ratio =
seconds of the writer of the same bytes / ours.

Exit 1 if the operator writes something in 60 idle seconds, or if a pass takes longer than its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from baselines import measure_job_controller, measure_writers, write_template
from control_plane import ControlPlane, install, operator_kubeconfig, wait_for
from kube import Kube
from load import (
    BIN,
    FOLDER,
    PATIENCE_S,
    ROOT,
    Bench,
    Observer,
    Sizes,
    create_all,
    in_parallel,
    job,
    node,
)
from operator_process import Audit, Costs, Metrics, median_of, writes_of
from ports import free_port

LONGEST_PASS_S = 0.1  # with 500 queued jobs


def running_jobs(kube: Kube, namespace: str) -> int:
    jobs = kube.list("trainingjobs", namespace)
    return sum(item.get("status", {}).get("phase") == "Running" for item in jobs)


def run_jobs(bench: Bench, namespace: str, jobs: list[dict[str, Any]]) -> dict[str, float]:
    """Creates jobs and waits until all their pods run; `total_s` is from the first create on."""
    pods = sum(item["spec"]["roles"][0]["replicas"] for item in jobs)
    observer = Observer(namespace, pods, "running")
    began = time.monotonic()
    create_all(bench.kube, "trainingjobs", namespace, jobs)
    seen = observer.wait(bench.plane)
    seen["total_s"] = time.monotonic() - began
    wait_for(
        f"all jobs of {namespace} are Running",
        lambda: running_jobs(bench.kube, namespace) == len(jobs),
    )
    return seen


def measure_jobs(bench: Bench, audit: Audit) -> None:
    sizes = bench.sizes
    began = datetime.now(UTC)
    jobs = [job(f"job-{index}", sizes.pods, 2) for index in range(sizes.jobs)]
    seen = run_jobs(bench, "many", jobs)
    pods = sizes.jobs * sizes.pods
    requests = audit.requests(began, datetime.now(UTC))
    bench.row(f"{sizes.jobs} jobs of {sizes.pods}, until all run", "jobs_s", seen["total_s"], "s")
    bench.row("their pods, first to last created", "jobs_created_s", seen["created_s"], "s")
    bench.row("pods created", "pods_per_s", pods / seen["created_s"], "pods/s")
    bench.row("requests", "requests_per_pod", sum(requests.values()) / pods, "a pod")
    bench.result["requests"] = dict(requests.most_common())
    sizes_of_pod = write_template(bench.kube, "many")
    bench.result["pod_bytes"], bench.result["managed_fields_bytes"] = sizes_of_pod
    seen = run_jobs(bench, "large", [job("large", sizes.large, 8)])
    bench.row(f"a job of {sizes.large}, until all run", "large_s", seen["total_s"], "s")
    bench.row("its pods, first to last created", "large_created_s", seen["created_s"], "s")


def measure_idle(bench: Bench, audit: Audit) -> None:
    """Waits until nothing but the Lease is written, and then looks for `idle_s`."""
    quiet_s = 5.0

    def is_quiet() -> bool:
        now = datetime.now(UTC)
        since = datetime.fromtimestamp(now.timestamp() - quiet_s, UTC)
        return not writes_of(audit.requests(since, now))

    began = time.monotonic()
    wait_for("the operator writes no more", is_quiet, 120)
    bench.row("until it is quiet", "settle_s", time.monotonic() - began, "s")
    start = datetime.now(UTC)
    time.sleep(bench.idle_s)
    requests = audit.requests(start, datetime.now(UTC))
    writes = writes_of(requests)
    bench.result["idle_writes"] = writes
    bench.result["idle_requests"] = dict(requests)
    bench.row(
        f"writes in {bench.idle_s} idle seconds, without the Lease",
        "idle_writes_total",
        sum(writes.values()),
        "",
    )


def measure_deletion(bench: Bench) -> None:
    sizes = bench.sizes
    observers = [
        Observer("many", sizes.jobs * sizes.pods, "gone"),
        Observer("large", sizes.large, "gone"),
    ]
    began = time.monotonic()
    jobs = [("many", f"job-{index}") for index in range(sizes.jobs)] + [("large", "large")]
    in_parallel(bench.kube, jobs, lambda kube, job: kube.delete("trainingjobs", *job))
    for observer in observers:
        observer.wait(bench.plane)
    bench.row("pods gone after the deletion", "pods_gone_s", time.monotonic() - began, "s")

    def nothing_left() -> bool:
        kinds = ("trainingjobs", "pods", "services", "secrets")
        return not any(
            bench.kube.list(kind, namespace, limit="1")
            for namespace in ("many", "large")
            for kind in kinds
        )

    wait_for("all is deleted", nothing_left, PATIENCE_S)
    bench.row("all gone after the deletion", "deleted_s", time.monotonic() - began, "s")


def measure_operator(bench: Bench) -> None:
    plane, port = bench.plane, free_port()
    metrics, audit = Metrics(port), Audit(plane.audit_log)
    kubeconfig = operator_kubeconfig(bench.kube, FOLDER)
    operator = plane.run(
        "operator",
        f"--kubeconfig={kubeconfig}",
        "--namespace=paceline-system",
        "--identity=scale",
        f"--http-listen=127.0.0.1:{port}",
        tool=str(BIN / "paceline-operator"),
    )
    costs = Costs(operator.pid)
    wait_for(
        "the operator knows all nodes",
        lambda: metrics.value("paceline_operator_cached_nodes") == bench.sizes.nodes,
    )
    measure_jobs(bench, audit)
    busy_cpu = costs.cpu_s()
    measure_idle(bench, audit)
    idle_cpu = costs.cpu_s() - busy_cpu
    bench.result["passes"] = metrics.passes()[-1][1]
    longest = metrics.value("paceline_operator_scheduler_pass_longest_seconds")
    median = min(median_of(metrics.passes()), longest)  # a bucket ends above what is in it
    measure_deletion(bench)
    bench.row("median of a pass of the scheduler", "pass_median_ms", median * 1000, "ms")
    bench.row("longest pass", "pass_longest_ms", longest * 1000, "ms")
    bench.row("operator's CPU until all pods ran", "cpu_s", busy_cpu, "s")
    bench.row("its CPU while idle", "idle_cpu_s", idle_cpu, "s")
    bench.row("its CPU in all", "cpu_total_s", costs.cpu_s(), "s")
    bench.row("its peak memory", "peak_mib", costs.peak_mib(), "MiB")
    operator.send_signal(signal.SIGTERM)
    plane.forget(operator)


def built_tools() -> str:
    return subprocess.run(
        [ROOT / "tests" / "cluster" / "build-tools", "--with-kwok"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="of nodes, jobs and the large job")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--pods", type=int, default=20, help="pods of a job")
    parser.add_argument("--large", type=int, default=2048, help="pods of the large job")
    parser.add_argument("--idle", type=int, default=60, help="seconds")
    parser.add_argument("--tools", help="folder of the programs (default: build-tools --with-kwok)")
    arguments = parser.parse_args()

    def scaled(count: int) -> int:
        return max(1, round(count * arguments.scale))

    sizes = Sizes(
        scaled(arguments.nodes), scaled(arguments.jobs), arguments.pods, scaled(arguments.large)
    )
    tools = arguments.tools or built_tools()
    os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plane = ControlPlane(Path(tools), FOLDER)
    try:
        return measure(plane, sizes, arguments.idle)
    finally:
        plane.stop()


def measure(plane: ControlPlane, sizes: Sizes, idle_s: int) -> int:
    began = time.monotonic()
    kube = plane.start()
    os.environ["KUBECONFIG"] = str(kube.kubeconfig)
    bench = Bench(plane, kube, sizes, idle_s)
    install(kube, plane.tools)
    for name in ("many", "large", "same", "bare", "batch"):
        kube.create("namespaces", "", {"metadata": {"name": name}})
    create_all(kube, "nodes", "", [node(index) for index in range(sizes.nodes)])
    print(f"{sizes.nodes} nodes after {time.monotonic() - began:.0f} s", flush=True)
    measure_operator(bench)
    measure_writers(bench)
    measure_job_controller(bench)
    result = {
        "bench": "scale",
        "ratio": round(1 / bench.result["times_same"], 3),
        "baseline": "parallel writer of the same bytes",
        "nodes": sizes.nodes,
        "jobs": sizes.jobs,
        "pods": sizes.pods,
        "large": sizes.large,
        **bench.result,
        "took_s": round(time.monotonic() - began),
    }
    width = max(len(what) for what, _ in bench.rows)
    print("\n" + "\n".join(f"{what:{width}}  {value:>14}" for what, value in bench.rows))
    print(json.dumps(result))
    quick = bench.result["pass_longest_ms"] <= 1000 * LONGEST_PASS_S
    return 0 if quick and not bench.result["idle_writes"] else 1


if __name__ == "__main__":
    sys.exit(main())
