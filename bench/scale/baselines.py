# SPDX-License-Identifier: Apache-2.0
"""Who else creates such pods: two parallel writers, and Kubernetes' own Job controller."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from kube import Kube
from load import BIN, FOLDER, Bench, Observer, create_all, in_parallel, job

TEMPLATE = FOLDER / "pod.json"
MOST_JOBS = 100  # as in bench/gang_writes


def named(item: dict[str, Any]) -> dict[str, str]:
    return {key: item["metadata"][key] for key in ("name", "uid")}


def size_of(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def write_template(kube: Kube, namespace: str) -> tuple[int, int]:
    """One of the operator's pods, for the writer of the same bytes, which spreads them itself.

    Returns the bytes of the pod and of the operator's managedFields, without what others added.
    """
    pod = kube.list("pods", namespace, limit="1")[0]
    metadata = {key: pod["metadata"][key] for key in ("labels", "ownerReferences")}
    # The job will be gone by then, and the garbage collector would take the pods away.
    stays = kube.create("configmaps", "same", {"metadata": {"name": pod["metadata"]["name"]}})
    for owner in metadata["ownerReferences"]:
        owner.update(apiVersion="v1", kind="ConfigMap", **named(stays))
    place = pod["spec"]["nodeName"]
    spec = {
        key: value for key, value in pod["spec"].items() if key not in ("tolerations", "nodeName")
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    TEMPLATE.write_text(json.dumps(body).replace(place, "@NODE@"))
    managed = pod["metadata"]["managedFields"]
    ours = [entry for entry in managed if entry["manager"].startswith("paceline")]
    return size_of(body), size_of(ours)


def make_room(bench: Bench, namespace: str, pods: int) -> None:
    """For the next: in a small cluster the pods of two of them would not fit."""
    gone = Observer(namespace, pods, "gone")
    names = [pod["metadata"]["name"] for pod in bench.kube.list("pods", namespace)]
    in_parallel(bench.kube, names, lambda kube, name: kube.delete("pods", namespace, name))
    gone.wait(bench.plane)


def measure_writers(bench: Bench) -> None:
    sizes = bench.sizes
    jobs = min(sizes.jobs, MOST_JOBS)
    pods = jobs * sizes.pods
    bare = FOLDER / "bare-pod.json"
    template = job("bare", 1, 2)["spec"]["roles"][0]["template"]
    bare.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]})
    )
    for side, file in (("same", TEMPLATE), ("bare", bare)):
        observer = Observer(side, pods, "created")
        command: list[str | Path] = [BIN / "gang_writes", "--namespace", side]
        command += ["--jobs", str(jobs)]
        command += ["--pods", str(sizes.pods), "write", "--template", str(file)]
        subprocess.run([*command, "--nodes", str(sizes.nodes)], check=True)
        seconds = observer.wait(bench.plane)["created_s"]
        what = "writer of the same bytes" if side == "same" else "writer of bare pods"
        bench.row(what, f"{side}_pods_per_s", pods / seconds, "pods/s")
        times = pods / seconds / bench.result["pods_per_s"]
        bench.row("the operator's time over that of the " + what, f"times_{side}", times, "")
        make_room(bench, side, pods)


def batch_job(name: str, pods: int) -> dict[str, Any]:
    """The same pods as a Job of Kubernetes. JobSet and Kubeflow Trainer create Jobs like this."""
    template = job(name, pods, 2)["spec"]["roles"][0]["template"]
    template["spec"]["restartPolicy"] = "Never"
    counts = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**counts, "template": template},
    }


def measure_job_controller(bench: Bench) -> None:
    """Its workers and limits are Kubernetes' defaults, but for the rate of its requests."""
    jobs = min(bench.sizes.jobs, MOST_JOBS)
    pods = jobs * bench.sizes.pods
    bench.plane.start_controllers("job-controller")
    observer = Observer("batch", pods, "running")
    began = time.monotonic()
    items = [batch_job(f"job-{index}", bench.sizes.pods) for index in range(jobs)]
    create_all(bench.kube, "jobs", "batch", items)
    created = pods / observer.wait(bench.plane)["created_s"]
    bench.row(f"{jobs} Jobs, until all run", "batch_jobs_s", time.monotonic() - began, "s")
    bench.row("Kubernetes' Job controller", "batch_pods_per_s", created, "pods/s")
    times = created / bench.result["pods_per_s"]
    bench.row("the operator's time over that of the Job controller", "times_batch", times, "")
