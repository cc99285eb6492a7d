# SPDX-License-Identifier: Apache-2.0
"""The scrape configuration of dashboards/README.md finds each launcher once, and nothing else. A real
Prometheus relabels what Kubernetes would show it of the containers.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import yaml
from prometheus import Prometheus

README = Path(__file__).resolve().parents[2] / "dashboards" / "README.md"
META = "__meta_kubernetes_pod_"
PORTS = {"paceline-meet": "16300", "paceline-http": "16301"}


def container(
    ip: str, port: str = "", job: str = "train", init: bool = False, phase: str = "Running"
) -> dict[str, object]:
    """As Prometheus' discovery shows one container, or one port of it. Of pods with hostNetwork the
    address is the node's, 10.0.0.1."""
    labels = {
        "ip": ip,
        "host_ip": "10.0.0.1",
        "phase": phase,
        "container_init": "true" if init else "false",
        **({"label_paceline_dev_job": job} if job else {}),
        **(
            {"container_port_name": port, "container_port_number": PORTS.get(port, "80")}
            if port
            else {}
        ),
    }
    return {"targets": [ip], "labels": {META + name: value for name, value in labels.items()}}


def targets_of(tmp_path: Path, containers: list[dict[str, object]]) -> list[str]:
    block = re.search(r"```yaml\n(scrape_configs:.*?)```", README.read_text(), re.DOTALL)
    assert block
    job = yaml.safe_load(block[1])["scrape_configs"][0]
    del job["kubernetes_sd_configs"]
    found = tmp_path / "found.json"
    found.write_text(json.dumps(containers))
    job["file_sd_configs"] = [{"files": [str(found)]}]
    with Prometheus(tmp_path, [], yaml.safe_dump({"scrape_configs": [job]})) as prometheus:
        deadline = time.monotonic() + 60
        seen: list[str] = []
        while not seen and time.monotonic() < deadline:
            time.sleep(0.2)
            seen = [one["scrapeUrl"] for one in prometheus.ask("targets")["activeTargets"]]
    return sorted(seen)


def test_each_launcher_is_one_target(tmp_path: Path) -> None:
    pod, of_node, ended, of_nobody = "10.1.0.1", "10.0.0.1", "10.1.0.8", "10.1.0.9"
    containers = [
        container(pod),
        container(pod, "web"),  # a sidecar
        container(pod, init=True),
        container(of_node, "paceline-meet"),
        container(of_node, "paceline-http"),
        container(of_node),  # a sidecar
        container(of_node, "web"),
        container(of_node, init=True),
        container(ended, phase="Succeeded"),
        container(of_nobody, job=""),
    ]
    assert targets_of(tmp_path, containers) == [
        f"http://{of_node}:16301/metrics",
        f"http://{pod}:29401/metrics",
    ]
