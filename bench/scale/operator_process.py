# SPDX-License-Identifier: Apache-2.0
"""The operator under measurement: what it costs, what it says of its passes, and, from the API
server's audit log, what it asks for.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections import Counter
from datetime import datetime
from pathlib import Path

WRITES = {"create", "update", "patch", "delete", "deletecollection"}
LEASE = "update leases paceline-operator"
BUCKET = re.compile(
    r'paceline_operator_scheduler_pass_seconds_bucket\{le="([^"]+)"\} (\d+)', re.MULTILINE
)


class Costs:
    """Reads /proc of one process."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")

    def cpu_s(self) -> float:
        fields = (self._proc / "stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise SystemExit("scale: /proc names no peak of the operator's memory")


class Metrics:
    """The operator's /metrics, as they are when asked."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def text(self) -> str:
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            return str(answer.read().decode())

    def value(self, name: str) -> float:
        """0 if the operator does not answer yet, or has no such metric."""
        try:
            found = re.search(rf"^{name} (\S+)$", self.text(), re.MULTILINE)
        except OSError:
            return 0
        return float(found[1]) if found else 0

    def passes(self) -> list[tuple[float, int]]:
        """Upper bounds in seconds, and how many passes took at most that long."""
        return [(float(bound), int(count)) for bound, count in BUCKET.findall(self.text())]


def median_of(passes: list[tuple[float, int]]) -> float:
    """The median, by linear interpolation within its bucket, as Prometheus does it."""
    total = passes[-1][1] if passes else 0
    lower, below = 0.0, 0
    for bound, count in passes:
        if total and count >= total / 2:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (total / 2 - below) / max(1, count - below)
        lower, below = bound, count
    return 0.0


class Audit:
    """The operator's requests in the API server's audit log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def requests(self, since: datetime, until: datetime) -> Counter[str]:
        """Requests but watches, by verb and resource; those for one name of a Lease by name."""
        found: Counter[str] = Counter()
        for line in self._log.read_text().splitlines():
            event = json.loads(line)
            at = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00"))
            if not since <= at < until or event["verb"] == "watch":
                continue
            about = event.get("objectRef", {})
            resource = about.get("resource", event["requestURI"])
            if about.get("subresource"):
                resource += f"/{about['subresource']}"
            if resource == "leases":
                resource += f" {about.get('name')}"
            found[f"{event['verb']} {resource}"] += 1
        return found


def writes_of(requests: Counter[str]) -> dict[str, int]:
    """Those that change something, but renewals of the Lease, most frequent first."""
    return {
        what: count
        for what, count in requests.most_common()
        if what.split()[0] in WRITES and what != LEASE
    }
