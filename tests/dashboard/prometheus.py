# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes given addresses every second, for as long as a test needs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from ports import free_port

# As dashboards/README.md tells users to scrape: the series' own `namespace` and `job` win over
# those of the scrape.
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 900ms}}
scrape_configs:
  - job_name: paceline
    honor_labels: true
    static_configs:
      - targets: {targets}
"""


class Prometheus:
    """Start it with `with`; it ends, and its data goes, at the end of the block."""

    def __init__(self, folder: Path, targets: list[str], config: str = "") -> None:
        self.folder = folder
        self.config = config or CONFIG.format(targets=json.dumps(targets))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        program = shutil.which("prometheus")
        assert program, "prometheus is not installed: scripts/setup installs Debian's"
        config = self.folder / "prometheus.yml"
        config.write_text(self.config)
        log = (self.folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):
                    return self
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, (self.folder / "prometheus.log").read_text()[
                    -2000:
                ]
                time.sleep(0.2)
        self.__exit__()
        raise AssertionError(
            "Prometheus is not ready after 120 s: "
            + (self.folder / "prometheus.log").read_text()[-2000:]
        )

    def __exit__(self, *_: object) -> None:
        assert self.process
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, path: str, **parameters: str | float) -> Any:
        """The `data` of an API answer; an error answer fails with Prometheus' own words."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(
                f"{parameters}: {error.read().decode(errors='replace')}"
            ) from error

    def range(self, expression: str, start: float, end: float) -> list[dict[str, Any]]:
        return list(
            self.ask("query_range", query=expression, start=start, end=end, step=1)["result"]
        )
