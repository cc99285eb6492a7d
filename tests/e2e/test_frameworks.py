# SPDX-License-Identifier: Apache-2.0
"""Examples of other frameworks than PyTorch on the real cluster, with their real packages. The image
is the one with Debian's Python; the packages come from this machine, through a volume.

XGBoost, whose package is small, always runs. PACELINE_E2E_FRAMEWORKS names further examples.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
import yaml
from jobs import JobHandle
from kube import Kube
from testbed import ROOT, Operator

# The environment of scripts/framework-env that an example needs, by the example's name.
ENVIRONMENTS = {
    "xgboost": "xgboost",
    "horovod": "horovod",
    "jax": "jax",
    "mindspore": "mindspore",
    "paddle": "paddle",
    "tensorflow-multiworker": "tensorflow",
}
LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"
WANTED = ["xgboost", *os.environ.get("PACELINE_E2E_FRAMEWORKS", "").split()]


def packages(framework: str) -> str:
    """The folder of the framework's packages on this machine."""
    made = subprocess.run(
        [ROOT / "scripts" / "framework-env", framework],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    home = Path(made.stdout.strip().splitlines()[-1]).parent.parent
    # Debian's Python in the image takes packages of this version alone.
    return str(home / "lib" / "python3.11" / "site-packages")


@pytest.mark.parametrize("example", WANTED)
def test_an_example_trains(
    kube: Kube, operator: Operator, namespace: str, pytorch_image: None, example: str
) -> None:
    operator.wait_ready()
    folder = packages(ENVIRONMENTS[example])
    job = yaml.safe_load((ROOT / "examples" / f"{example}.yaml").read_text())
    for role in job["spec"]["roles"]:
        spec = role["template"]["spec"]
        spec["volumes"] = [
            {"name": "packages", "hostPath": {"path": folder}},
            # The image has only what its own Python loads. It was made on this machine, so its
            # other libraries fit.
            {"name": "libraries", "hostPath": {"path": LIBRARIES}},
        ]
        for container in spec["containers"]:
            container["image"] = "paceline/pytorch:dev"
            container["imagePullPolicy"] = "IfNotPresent"
            container["volumeMounts"] = [
                {"name": "packages", "mountPath": "/packages", "readOnly": True},
                {"name": "libraries", "mountPath": "/libraries", "readOnly": True},
            ]
            container.setdefault("env", []).extend(
                [
                    {"name": "PYTHONPATH", "value": "/packages"},
                    {"name": "LD_LIBRARY_PATH", "value": "/libraries"},
                ]
            )
    kube.create("trainingjobs", namespace, job)
    handle = JobHandle(kube, namespace, job["metadata"]["name"])
    status = handle.wait_phase("Succeeded", timeout=400)
    assert status["restarts"] == 0
    logs = "".join(kube.logs(namespace, name) for name in handle.pod_names())
    assert "trained by " in logs, logs[-2000:]
    assert status["training"]["step"] > 0, status["training"]
