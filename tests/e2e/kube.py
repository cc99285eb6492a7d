# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API as the tests use it: plain HTTPS for reading and waiting (cheap enough to
poll), kubectl where a person would use kubectl (apply, exec, the columns of get).

Every wait has a limit and fails with the state of the namespace: jobs with their conditions, pods,
events, logs.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

Object = dict[str, Any]
Objects = list[Object]  # Kube.list hides the type within its class
Answer = TypeVar("Answer")

CORE = "/api/v1"
LONGEST_IDLE_S = 30
JOBS = "/apis/paceline.dev/v1alpha1"
GROUPS = {
    "trainingjobs": JOBS,
    "leases": "/apis/coordination.k8s.io/v1",
    "deployments": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "daemonsets": "/apis/apps/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "nodefabrics": JOBS,
    "runtimeprofiles": JOBS,
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "storageclasses": "/apis/storage.k8s.io/v1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
}
POLL_SECONDS = 0.15
BUSY = (429, 500, 503)  # what an API server that is coming up answers
# The API server tells a watch how far it has come 2 s before the watch's end.
WATCH_SECONDS = 3
PATIENCE_SECONDS = 180.0  # a busy machine takes its time; a test that is about time says so


class ApiError(Exception):
    """The API server refused: the code, and its own words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Kube:
    """One cluster, reached with the client certificate (or token) of a kubeconfig. Not shared
    between threads.
    """

    timeout_s = 20.0  # of one request

    def __init__(self, kubeconfig: Path, headers: dict[str, str] | None = None) -> None:
        """Further headers go with every request: those that impersonate somebody, say."""
        self.kubeconfig = kubeconfig
        view = json.loads(
            self.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
        )
        cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self._host, self._port = address.hostname or "", address.port or 443
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **(headers or {}),
        }
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        if "client-certificate-data" in user:
            pair = (
                base64.b64decode(user["client-certificate-data"])
                + b"\n"
                + base64.b64decode(user["client-key-data"])
            )
            with tempfile.NamedTemporaryFile(prefix="paceline-e2e-", suffix=".pem") as file:
                file.write(pair)
                file.flush()
                self._tls.load_cert_chain(file.name)
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0

    def again(self) -> Kube:
        """The same cluster on a connection of its own, for another thread."""
        other = copy.copy(self)
        other._connection = None
        return other

    # kubectl

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Runs kubectl; its error output is in the failure."""
        done = self.kubectl_result(*arguments, stdin=stdin)
        if check and done.returncode != 0:
            raise AssertionError(
                f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout

    def kubectl_result(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            check=False,
        )

    # HTTPS

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "", raw: bool = False
    ) -> Any:
        """One request; a connection that broke in between is opened again once, for reads only."""
        for again in (method == "GET", False):
            try:
                return self._request(method, path, body, content_type, raw)
            except (OSError, http.client.HTTPException):
                self.close()
                if not again:
                    raise
        raise AssertionError("unreachable")

    def _request(self, method: str, path: str, body: Any, content_type: str, raw: bool) -> Any:
        text = self._send(method, path, body, content_type).read().decode(errors="replace")
        self._used = time.monotonic()
        return text if raw else json.loads(text)

    def _send(
        self, method: str, path: str, body: Any = None, content_type: str = ""
    ) -> http.client.HTTPResponse:
        """The answer, which is yet to be read; a refusal is raised."""
        # The server closes idle connections, and a write is not repeated.
        if time.monotonic() - self._used > LONGEST_IDLE_S:
            self.close()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self.timeout_s, context=self._tls
            )
        headers = {**self._headers, **({"Content-Type": content_type} if content_type else {})}
        payload = None if body is None else json.dumps(body)
        self._connection.request(method, path, payload, headers)
        response = self._connection.getresponse()
        self._used = time.monotonic()
        if response.status >= 300:
            text = response.read().decode(errors="replace")
            try:
                message = json.loads(text).get("message", text)
            except ValueError:
                message = text
            raise ApiError(response.status, message)
        return response

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def alive(self) -> bool:
        try:
            return self.request("GET", "/readyz", raw=True) == "ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False

    # objects

    @staticmethod
    def path(kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = [GROUPS.get(kind, CORE)]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (kind, name, subresource) if part]
        return "/".join(parts)

    def get(self, kind: str, namespace: str, name: str) -> Object:
        return self.request("GET", self.path(kind, namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        try:
            return self.get(kind, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def is_established(self, definition: str) -> bool:
        """Whether the objects of a CustomResourceDefinition are served."""
        conditions = (
            self.get("customresourcedefinitions", "", definition)
            .get("status", {})
            .get("conditions")
            or []
        )
        return any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in conditions
        )

    def list(self, kind: str, namespace: str = "", **query: str) -> list[Object]:
        return self.listing(kind, namespace, **query)["items"]

    def listing(self, kind: str, namespace: str = "", **query: str) -> Object:
        suffix = "?" + urlencode(query) if query else ""
        return self.request("GET", self.path(kind, namespace) + suffix)

    def create(self, kind: str, namespace: str, body: Object) -> Object:
        return self.request("POST", self.path(kind, namespace) + "?fieldValidation=Strict", body)

    def patch(
        self, kind: str, namespace: str, name: str, change: Object, subresource: str = ""
    ) -> Object:
        path = self.path(kind, namespace, name, subresource)
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, kind: str, namespace: str, name: str, **query: str) -> None:
        suffix = "?" + urlencode(query) if query else ""
        try:
            self.request("DELETE", self.path(kind, namespace, name) + suffix)
        except ApiError as error:
            if error.code != 404:
                raise

    def history(self, kind: str, namespace: str, since: str) -> Objects:
        """Every change of a kind from a resource version until now, as the API server's watch tells
        it: {type, object}.

        A watch ends in time however much it has told, so the next one goes on where it ended, until
        an event or a bookmark is as new as the list is now.
        """
        until = int(self.listing(kind, namespace)["metadata"]["resourceVersion"])
        events: Objects = []
        newest = since

        def complete() -> bool:
            nonlocal newest
            query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": newest}
            query["timeoutSeconds"] = str(WATCH_SECONDS)
            try:
                for line in self._send("GET", f"{self.path(kind, namespace)}?{urlencode(query)}"):
                    event = json.loads(line)
                    assert event["type"] != "ERROR", f"history of {kind} is incomplete: {event}"
                    newest = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        events.append(event)
                    if int(newest) >= until:
                        return True
            finally:
                self.close()  # the rest stays unread
            return False

        self.wait(f"the history of {kind} until {until}", complete, namespace)
        return events

    def logs(
        self, namespace: str, pod: str, container: str = "trainer", previous: bool = False
    ) -> str:
        query = urlencode({"container": container, **({"previous": "true"} if previous else {})})
        try:
            return self.request(
                "GET", f"{self.path('pods', namespace, pod, 'log')}?{query}", raw=True
            )
        except ApiError as error:
            return f"(no log: {error})"

    def execute(self, namespace: str, pod: str, script: str, container: str = "trainer") -> str:
        """Runs a shell script in a container."""
        return self.kubectl(
            "exec", "-n", namespace, pod, "-c", container, "--", "/bin/sh", "-c", script
        )

    # waiting

    def wait(
        self,
        what: str,
        predicate: Callable[[], Answer],
        namespace: str = "",
        timeout: float = PATIENCE_SECONDS,
        poll: float = POLL_SECONDS,
    ) -> Answer:
        """Polls until the predicate gives something true, and answers it. An API server that is
        away counts as no.
        """
        deadline = time.monotonic() + timeout
        trouble = ""
        while True:
            try:
                answer = predicate()
                trouble = ""
            except (OSError, http.client.HTTPException) as error:
                self.close()
                answer, trouble = None, f" (last: {error})"
            except ApiError as error:
                if error.code not in BUSY:
                    raise
                answer, trouble = None, f" (last: {error})"
            if answer:
                return answer
            if time.monotonic() > deadline:
                state = self.describe(namespace) if namespace else ""
                raise AssertionError(f"not within {timeout:g} s: {what}{trouble}\n{state}")
            time.sleep(poll)

    # what a failure shows

    def describe(self, namespace: str) -> str:
        """The namespace in words: jobs with conditions, pods with their containers, events, ends of
        logs.
        """
        try:
            return self._describe(namespace)
        except (OSError, http.client.HTTPException, ApiError) as error:
            return f"(namespace {namespace} cannot be shown: {error})"

    def _describe(self, namespace: str) -> str:
        lines: list[str] = []
        for job in self.list("trainingjobs", namespace):
            status = dict(job.get("status", {}))
            conditions = status.pop("conditions", [])
            lines.append(f"trainingjob {job['metadata']['name']}: {json.dumps(status)}")
            lines += [
                f"  {c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions
            ]
        pods = self.list("pods", namespace)
        for pod in pods:
            status = pod.get("status", {})
            lines.append(
                f"pod {pod['metadata']['name']} on {pod['spec'].get('nodeName', '-')}:"
                f" {status.get('phase')} {status.get('reason', '')}"
                f" gates={pod['spec'].get('schedulingGates', [])}"
                f" deleting={pod['metadata'].get('deletionTimestamp', '-')}"
            )
            containers = status.get("initContainerStatuses", []) + status.get(
                "containerStatuses", []
            )
            lines += [f"  {c['name']}: {json.dumps(c.get('state', {}))[:1500]}" for c in containers]
            lines += [
                f"  {c['type']}={c['status']} {c.get('reason', '')}: {c.get('message', '')}"
                for c in status.get("conditions", [])
                if c["status"] != "True"
            ]
        for event in self.list("events", namespace)[-25:]:
            about = event.get("involvedObject", {})
            where = f"{about.get('kind')} {about.get('name')}"
            lines.append(f"event {event.get('reason')} {where}: {event.get('message', '')[:300]}")
        for pod in pods:
            log = self.logs(namespace, pod["metadata"]["name"]).splitlines()[-15:]
            lines += [f"log {pod['metadata']['name']}: {line}" for line in log]
        return "\n".join(lines)
