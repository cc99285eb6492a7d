# SPDX-License-Identifier: Apache-2.0
"""Other gang schedulers as processes of this machine, beside the test cluster: Volcano's, with the
configuration that it has built in, and Coscheduling, as the plugin of a second kube-scheduler.
Neither webhooks nor other controllers of theirs run. On a cluster of Kubernetes 1.37 its own
scheduler is one, which runs there already.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from kube import GROUPS, Kube

VOLCANO_API = "/apis/scheduling.volcano.sh/v1beta1"
COSCHEDULING_API = "/apis/scheduling.x-k8s.io/v1alpha1"
GROUPS["queues"] = VOLCANO_API


def _volcano(kubeconfig: Path, folder: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--listen-address=127.0.0.1:18082",
        f"--cache-dump-dir={folder}",
    ]


def _coscheduling(kubeconfig: Path, folder: Path) -> list[str]:
    profile = {
        "schedulerName": "scheduler-plugins-scheduler",
        "plugins": {
            "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
            "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        },
        "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [profile],
    }
    file = folder / "configuration.yaml"
    file.write_text(yaml.safe_dump(configuration))
    return [f"--config={file}", "--secure-port=0"]


def open_queue(kube: Kube, name: str) -> None:
    """What Volcano's controller does, which does not run here."""
    kube.patch("queues", "", f"{name}/status", {"status": {"state": "Open"}})


@dataclass(frozen=True)
class Kind:
    """One of the schedulers: its program on PATH, and what tells it a pod's group."""

    program: str
    backend: str
    name: str  # schedulerName of its pods
    api: str  # of its PodGroups
    group_path: tuple[str, ...]  # where a pod names its group
    size_path: tuple[str, ...]  # where a group has its number of pods
    flags: Callable[[Path, Path], list[str]] | None  # None: the cluster runs it
    called: str = ""  # in messages, if not as the backend
    profile: str = ""  # of the cluster


KINDS = {
    "volcano": Kind(
        "volcano",
        "Volcano",
        "volcano",
        VOLCANO_API,
        ("metadata", "annotations", "scheduling.k8s.io/group-name"),
        ("spec", "minMember"),
        _volcano,
    ),
    "coscheduling": Kind(
        "coscheduling",
        "Coscheduling",
        "scheduler-plugins-scheduler",
        COSCHEDULING_API,
        ("metadata", "labels", "scheduling.x-k8s.io/pod-group"),
        ("spec", "minMember"),
        _coscheduling,
    ),
    "kubernetes": Kind(
        "kube-scheduler",
        "PodGroup",
        "default-scheduler",
        "/apis/scheduling.k8s.io/v1beta1",
        ("spec", "schedulingGroup", "podGroupName"),
        ("spec", "schedulingPolicy", "gang", "minCount"),
        None,
        called="kube-scheduler",
        profile="1.37",
    ),
}


PROFILE = os.environ.get("PACELINE_CLUSTER_PROFILE", "")
HERE = [name for name in sorted(KINDS) if KINDS[name].profile == PROFILE]


class Scheduler:
    """One of them, running."""

    def __init__(self, kube: Kube, kind: Kind, program: Path, folder: Path) -> None:
        self.kind = kind
        self._kube = kube
        self._program = program
        self._folder = folder
        self.log = folder / "scheduler.log"
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Creates the definitions of its API."""
        if self.kind.flags is None:
            return
        names = []
        shipped = self._program.parent / f"{self.kind.program}-config"
        for file in sorted(shipped.glob("*.yaml")):
            self._kube.kubectl("apply", "--server-side", "-f", str(file))
            bodies = yaml.safe_load_all(file.read_text())
            names += [body["metadata"]["name"] for body in bodies if body]
        assert names, f"no definition in {shipped}"
        self._kube.wait(
            f"the API of {self.kind.backend}", lambda: all(map(self._kube.is_established, names))
        )

    def start(self) -> None:
        if self.kind.flags is None:
            return
        command = ["setpriv", "--pdeathsig", "KILL", str(self._program)]
        command += self.kind.flags(self._kube.kubeconfig, self._folder)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        if self.kind.backend == "Volcano":
            self._kube.wait("the default queue", lambda: self._kube.find("queues", "", "default"))
            open_queue(self._kube, "default")

    def stop(self) -> None:
        if self.kind.flags is None:
            return
        assert self._process
        ended_early = self._process.poll() is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert not ended_early, f"{self.kind.program} ended by itself:\n{self.tail()}"

    def tail(self, lines: int = 30) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
