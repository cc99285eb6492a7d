# SPDX-License-Identifier: Apache-2.0
"""Scheduler, kubelets and garbage collector of one namespace, played on a real API server: pods are
bound to the nodes that they are pinned to, run, end when told, and go with their job.
"""

from __future__ import annotations

import http.client
import threading
from types import TracebackType

from job_properties import pin_of
from kube import BUSY, ApiError, Kube, Object

PERIOD_SECONDS = 0.1


class PlayedCluster:
    """Acts on a thread of its own between __enter__ and __exit__."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube.again()
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="played-cluster", daemon=True)
        self._ending: set[str] = set()
        self.problem: Exception | None = None

    def end(self, job: str) -> None:
        """Lets every pod of the job end well from now on."""
        self._ending.add(job)

    def __enter__(self) -> PlayedCluster:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert kind is not None or self.problem is None, self.problem

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            try:
                self._act()
            except (OSError, http.client.HTTPException):
                pass  # the next period repeats it
            except Exception as error:  # told by __exit__, where the test can see it
                if not (isinstance(error, ApiError) and error.code in BUSY):
                    self.problem = error
                    return

    def _act(self) -> None:
        pods = self._kube.list("pods", self._namespace)  # first: a pod's job was there before it
        jobs = {job["metadata"]["uid"] for job in self._kube.list("trainingjobs", self._namespace)}
        for pod in pods:
            try:
                self._move(pod, pod["metadata"]["ownerReferences"][0]["uid"] in jobs)
            except ApiError as error:
                if error.code not in (404, 409):  # the operator was faster
                    raise

    def _move(self, pod: Object, owned: bool) -> None:
        """One step of one pod."""
        name = pod["metadata"]["name"]
        spec = pod["spec"]
        if not owned or "deletionTimestamp" in pod["metadata"]:
            self._kube.delete("pods", self._namespace, name, gracePeriodSeconds="0")
        elif spec.get("schedulingGates"):
            return
        elif not spec.get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": pin_of(pod)}
            path = self._kube.path("pods", self._namespace, name, "binding")
            self._kube.request("POST", path, {"metadata": {"name": name}, "target": target})
        else:
            self._report(pod)

    def _report(self, pod: Object) -> None:
        ended = pod["metadata"]["labels"]["paceline.dev/job"] in self._ending
        phase = "Succeeded" if ended else "Running"
        if pod["status"].get("phase") == phase:
            return
        state: Object = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if ended:
            state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        container = {"name": "trainer", "state": state, "ready": not ended, "restartCount": 0}
        container |= {"image": "none", "imageID": "none"}
        status = {"phase": phase, "containerStatuses": [container]}
        name = pod["metadata"]["name"]
        self._kube.patch("pods", self._namespace, name, {"status": status}, "status")
