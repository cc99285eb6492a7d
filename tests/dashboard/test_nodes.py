# SPDX-License-Identifier: Apache-2.0
"""Every query of the nodes' dashboard returns data on a real Prometheus that scrapes a real agent,
which reads a recorded machine whose counters this test moves at known rates.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from panels import ROOT, finite, load, queries
from ports import free_port
from prometheus import Prometheus

BUILD = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
DASHBOARD = load("paceline-nodes")
MACHINE = "dgx-h100-broken"
NODE = "node-1"
WINDOW_S = 6
# InfiniBand counts its bytes in words of four.
WORDS_A_SECOND = 1_000_000
ERRORS_A_SECOND = 20
PORT = "sys/class/infiniband/mlx5_0/ports/1"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
"""


def lay_out(machine: str, folder: Path) -> None:
    """A fixture of tests/fixtures/nodes as files; its format is described in `pack` beside it."""
    lines = iter(
        (ROOT / "tests" / "fixtures" / "nodes" / f"{machine}.tree").read_text().splitlines()
    )
    links = []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if " -> " in line:
            links.append(line.split(" -> "))
            continue
        if line.endswith(" <<"):
            name, content = (
                line[:-3],
                "".join(f"{more}\n" for more in iter(lambda: next(lines), ".")).encode(),
            )
        elif hexed := re.fullmatch(r"(\S+) =hex/(\d+) (.*)", line):
            name, content = hexed[1], bytes.fromhex(hexed[3]).ljust(int(hexed[2]), b"\0")
        else:
            name, _, text = line.partition(" =")
            content = f"{text.removeprefix(' ')}\n".encode()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, target in links:
        place = folder / name
        (place.parent / target).mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


@dataclass
class Run:
    prometheus: Prometheus
    start: float
    end: float

    def series(self, expression: str) -> list[dict[str, Any]]:
        for name, value in {"$node": ".*", "$__rate_interval": f"{WINDOW_S}s"}.items():
            expression = expression.replace(name, value)
        return self.prometheus.range(expression, self.start, self.end)


def move_counters(folder: Path, ended: threading.Event) -> None:
    """As devices do: each file holds its total at any moment."""
    began = time.monotonic()
    files = {
        folder / PORT / "counters" / "port_xmit_data": WORDS_A_SECOND,
        folder / PORT / "counters" / "symbol_error": ERRORS_A_SECOND,
    }
    while not ended.wait(0.05):
        for file, rate in files.items():
            new = file.with_name("new")
            new.write_text(f"{10**9 + int(rate * (time.monotonic() - began))}\n")
            new.replace(file)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    program = BUILD / "bin" / "paceline-agent"
    assert program.exists(), f"{program} is not built: scripts/build"
    folder = tmp_path_factory.mktemp("nodes")
    lay_out(MACHINE, folder / "machine")
    hardware = folder / "machine" / PORT / "hw_counters"
    for name in ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"):
        (hardware / name).write_text("7\n")
    for device in (folder / "machine" / "sys" / "class" / "net").iterdir():
        (device / "carrier_changes").write_text("2\n")
    (folder / "kubeconfig").write_text(KUBECONFIG)
    (folder / "look").mkdir()
    (folder / "look" / "taken").write_text("2026-01-02T03:04:05Z\n")
    port = free_port()
    command = [
        str(program),
        "--node-name",
        NODE,
        "--kubeconfig",
        str(folder / "kubeconfig"),
        "--probe-seconds",
        "1",
    ]
    command += [
        "--sys",
        str(folder / "machine" / "sys"),
        "--proc",
        str(folder / "machine" / "proc"),
    ]
    command += ["--nvml", str(BUILD / "tests" / "unit" / "agent" / "libpaceline_fake_nvml.so")]
    command += [
        "--pci-config",
        str(folder / "look"),
        "--listen-address",
        "127.0.0.1",
        "--listen-port",
        str(port),
    ]
    ended = threading.Event()
    devices = threading.Thread(target=move_counters, args=(folder / "machine", ended))
    log = folder / "agent.log"
    with Prometheus(folder, [f"127.0.0.1:{port}"]) as prometheus, log.open("w") as output:
        devices.start()
        agent = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FAKE_NVML_GPUS": "8", "FAKE_NVML_ERRORS": "3"},
        )
        try:
            start = time.time()
            deadline = start + 90
            rising = f"rate(paceline_rdma_port_errors_total[{WINDOW_S}s]) > 0"
            # Several windows of rate(), as Prometheus has them.
            while (
                time.time() < start + 5 * WINDOW_S
                or not prometheus.ask("query", query=rising)["result"]
            ):
                assert agent.poll() is None and time.time() < deadline, log.read_text()[-3000:]
                time.sleep(0.3)
            yield Run(prometheus, start, time.time())
        finally:
            ended.set()
            devices.join()
            agent.terminate()
            agent.wait(30)


@pytest.mark.parametrize(
    ("name", "expression"), queries(DASHBOARD), ids=[name for name, _ in queries(DASHBOARD)]
)
def test_query_returns_data(run: Run, name: str, expression: str) -> None:
    series = run.series(expression)
    assert series, f"{name}: no series for {expression}"
    assert any(finite(one) for one in series), f"{name}: only NaN for {expression}"


def expression_of(title: str) -> str:
    (found,) = [expression for name, expression in queries(DASHBOARD) if name == f"{title} A"]
    return found


def test_a_ports_traffic_is_what_it_moved(run: Run) -> None:
    (sent,) = [
        one
        for one in run.series(expression_of("RDMA"))
        if one["metric"] == {"node": NODE, "nic": "mlx5_0", "direction": "sent"}
    ]
    # One probe more or less falls into a window, and several where the agent came late.
    assert mean(finite(sent)) == pytest.approx(WORDS_A_SECOND * 4 * 8, rel=2 / WINDOW_S)


def test_only_the_error_that_rises_is_drawn(run: Run) -> None:
    drawn = {
        tuple(sorted(one["metric"].items()))
        for one in run.series(expression_of("RDMA errors a second"))
    }
    assert drawn == {(("kind", "symbol_error"), ("nic", "mlx5_0"), ("node", NODE))}


def test_what_fails_is_named(run: Run) -> None:
    """The machine's recording has a port that is down."""
    rows = {
        (one["metric"]["check"], one["metric"].get("nic", "")): finite(one)[-1]
        for one in run.series(expression_of("What fails or warns"))
    }
    assert rows["port-state", "mlx5_5"] == 2
    assert finite(run.series(expression_of("Failing checks"))[0])[-1] >= 1


def test_variables_find_the_nodes(run: Run) -> None:
    (query,) = [
        one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"
    ]
    matched = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert matched, query
    assert run.prometheus.ask(f"label/{matched[2]}/values", **{"match[]": matched[1]}) == [NODE]
