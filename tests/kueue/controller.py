# SPDX-License-Identifier: Apache-2.0
"""Kueue's own controller-manager as a process of this machine, beside the test cluster.

It runs with the configuration that Kueue ships. Changed is only what a pod would get from its
Deployment: addresses, certificates, and no leader election. All of Kueue's webhooks are installed;
the API server calls them at this machine's address.
"""

from __future__ import annotations

import base64
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kube import Kube, Object
from testcluster.certificates import Authority
from testcluster.state import HOST_ADDRESS

VERSION = "v1beta2"
NAMESPACE = "kueue-system"
WEBHOOK_PORT = 19443
HEALTH = "127.0.0.1:18081"


class Kueue:
    def __init__(self, kube: Kube, programs: Path, folder: Path) -> None:
        self._kube = kube
        self._program = programs / "kueue"
        self._shipped = programs / "kueue-config"
        self._folder = folder
        # Kueue reads the certificate of its metrics from this folder of /etc, wherever others lie.
        self._certificates = folder / "etc" / "kueue" / "metrics" / "certs"
        self.log = folder / "kueue.log"
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Creates the definitions, the webhooks and the namespace."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self._apply("/api/v1/namespaces", namespace)
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        names = []
        for definition in self._manifests("crd/bases/*.yaml"):
            # Older versions need Kueue's conversion webhook.
            versions = definition["spec"]["versions"]
            definition["spec"]["versions"] = [v for v in versions if v["name"] == VERSION]
            self._apply(definitions, definition)
            names.append(definition["metadata"]["name"])
        self._kube.wait(
            "Kueue's definitions are served", lambda: all(map(self._kube.is_established, names))
        )
        self._certificates.parent.mkdir(parents=True)
        authority = Authority(self._certificates)
        authority.create()
        authority.issue("tls", "/CN=kueue", f"IP:{HOST_ADDRESS}")
        bundle = base64.b64encode(Path(authority.path("ca.crt")).read_bytes()).decode()
        for webhooks in self._manifests("webhook/manifests.yaml"):
            webhooks["metadata"]["name"] = f"kueue-{webhooks['metadata']['name']}"
            for webhook in webhooks["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                url = f"https://{HOST_ADDRESS}:{WEBHOOK_PORT}{path}"
                webhook["clientConfig"] = {"url": url, "caBundle": bundle}
            kind = f"{webhooks['kind'].lower()}s"
            self._apply(f"/apis/admissionregistration.k8s.io/v1/{kind}", webhooks)

    def _manifests(self, pattern: str) -> Iterator[Object]:
        for file in sorted(self._shipped.glob(pattern)):
            yield from (body for body in yaml.safe_load_all(file.read_text()) if body)

    def _apply(self, path: str, body: Object) -> None:
        target = f"{path}/{body['metadata']['name']}?fieldManager=tests&force=true"
        self._kube.request("PATCH", target, body, "application/apply-patch+yaml")

    def start(self, **changes: Any) -> None:
        """Starts it with Kueue's own configuration, but for `changes`."""
        (shipped,) = self._manifests("manager/controller_manager_config.yaml")
        configuration = {
            **shipped,
            "namespace": NAMESPACE,
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "health": {"healthProbeBindAddress": HEALTH},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": HOST_ADDRESS,
                "port": WEBHOOK_PORT,
                "certDir": str(self._certificates),
            },
            **changes,
        }
        file = self._folder / "configuration.yaml"
        file.write_text(yaml.safe_dump(configuration))
        # Its own view of /etc holds the certificates; this machine's /etc stays as it is.
        overlay = 'mount -t overlay kueue -o "lowerdir=$0:/etc" /etc && exec "$@"'
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", overlay]
        command += [str(self._folder / "etc"), str(self._program), "--config", str(file)]
        # The API of pending workloads needs one more port, and no test asks for it.
        command += ["--feature-gates", "VisibilityOnDemand=false"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "KUBECONFIG": str(self._kube.kubeconfig)},
            )

    def wait_ready(self, timeout: float = 120) -> None:
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            assert self._process and self._process.poll() is None, f"Kueue ended:\n{self.tail()}"
            assert time.monotonic() < deadline, f"Kueue is not ready:\n{self.tail()}"
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HEALTH}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def tail(self, lines: int = 30) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
