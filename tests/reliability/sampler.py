# SPDX-License-Identifier: Apache-2.0
"""Looks at the pods of a namespace five times a second, and notes what must never be."""

from __future__ import annotations

import http.client
import threading
from collections import defaultdict

from kube import ApiError, Kube, Object

POLL_SECONDS = 0.2


def live(pod: Object) -> bool:
    """Whether the pod may run ranks, as far as the API server knows."""
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod["metadata"]


class Sampler:
    """A thread between `with` and its end. `faults` is complete afterwards."""

    def __init__(self, kube: Kube, namespace: str, waiting: str) -> None:
        self._kube, self._namespace, self._waiting = kube.again(), namespace, waiting
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.waits = True  # the job `waiting` must have no pod
        self.looks = 0
        self.names: dict[str, set[str]] = defaultdict(set)  # UIDs by name
        self.faults: list[str] = []

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            waits = self.waits
            try:
                pods = self._kube.list("pods", self._namespace)
            except (OSError, http.client.HTTPException, ApiError):
                self._kube.close()
                continue
            self._judge(pods, waits)
            self.looks += 1

    def _judge(self, pods: list[Object], waits: bool) -> None:
        holders: dict[str, list[str]] = defaultdict(list)
        for pod in pods:
            labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
            job = labels["paceline.dev/job"]
            self.names[name].add(pod["metadata"]["uid"])
            if live(pod):
                holders[f"{job} node rank {labels['paceline.dev/node-rank']}"].append(name)
            if waits and job == self._waiting:
                self.faults.append(f"{name} exists while its job waits")
        self.faults += [f"{who}: {names}" for who, names in holders.items() if len(names) > 1]
        self.faults += [
            f"{name} was created twice" for name, uids in self.names.items() if len(uids) > 1
        ]
