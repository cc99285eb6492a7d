# SPDX-License-Identifier: Apache-2.0
"""Every query of the dashboard returns data on a real Prometheus that scrapes a real run, in which
one rank is killed and the gang restarts.

What is not run here: Grafana itself, which is in no package source we use. Its JSON is checked
against the types that Grafana publishes, and the panels are drawn by its own components. Panels
that a job on a CPU cannot fill show a played job on GPUs.

PACELINE_PICTURES=FOLDER keeps the pictures, which docs/pictures has.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import played
import pytest
import yaml
from drawing import at_top, draw, drawing
from panels import ROOT, finite, load, queries
from ports import free_port
from prometheus import Prometheus

DASHBOARD = load("paceline-training")
BUILD = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
JOB = ROOT / "examples" / "digits-ddp.yaml"
# Long enough that a rank can be killed in the middle and the gang trains on for many scrapes.
EPOCHS = 2000
RANKS = 4
WINDOW_S = 5
# Panels whose series a job on a CPU does not have.
OF_GPUS = {
    "annotation Findings",
    "MFU",
    "MFU and operations of the model",
    "Operations per second",
    "Tokens per second",
    "Tokens per second of each rank",
    "Where each step's time goes on the device",
}
# rate() extrapolates to its window's edges, each counter by itself, and less where that would go
# below zero. Where a counter more than doubles within a window (the first steps of a slow start), a
# sum of rates is therefore not the rate of the sum.
NEAR_ZERO = " or ".join(
    f"({name} > 2 * ({name} offset {WINDOW_S}s)) and ({name} > 0.02)"
    for name in ("paceline_step_phase_seconds_total", "paceline_step_seconds_count")
)


@dataclass
class Run:
    """A finished run, with Prometheus still there to be asked about it."""

    prometheus: Prometheus
    start: float
    settled: float  # from here on, a window of rate() holds steps of the restarted gang alone
    end: float
    scrape: str
    namespace: str
    job: str

    def fill(self, expression: str, title: str = "") -> str:
        """The expression of that panel as Grafana would send it, its variables replaced."""
        of_gpus = title in OF_GPUS
        for name, value in {
            "$namespace": played.NAMESPACE if of_gpus else self.namespace,
            "$job": played.JOB if of_gpus else self.job,
            "$__rate_interval": f"{WINDOW_S}s",
            # More than one scrape falls into it, also on a busy machine.
            "$__interval": "30s",
        }.items():
            expression = expression.replace(name, value)
        return expression

    def series(self, expression: str, title: str = "") -> list[dict[str, Any]]:
        return self.prometheus.range(self.fill(expression, title), self.start, self.end)


def descendants(root: int) -> list[int]:
    """Processes below one, by /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def rank_process(root: int, rank: int) -> int | None:
    """The training process of one rank: the one that runs the script and was told this RANK."""
    for process in descendants(root):
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if f"RANK={rank}".encode() in environment and b"train.py" in command:
            return process
    return None


def wait_until(
    what: str, ready: Any, process: subprocess.Popen[str], log: Path, seconds: float = 300
) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := ready():
            return answer
        assert process.poll() is None, (
            f"the run ended with {process.returncode} before {what}:\n{log.read_text()[-3000:]}"
        )
        time.sleep(0.3)
    raise AssertionError(f"no {what} after {seconds} s:\n{log.read_text()[-3000:]}")


def write_job(folder: Path) -> Path:
    """The digits example, made longer, with this machine's paths."""
    job = yaml.safe_load(JOB.read_text())
    job["metadata"]["name"] = "dashboard"
    (trainer,) = job["spec"]["roles"][0]["template"]["spec"]["containers"]
    trainer["command"] = ["/usr/bin/python3", str(ROOT / "examples" / "digits" / "train.py")]
    trainer["args"] = ["--epochs", str(EPOCHS), "--checkpoint", str(folder / "digits.pt")]
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    program = BUILD / "bin" / "paceline"
    assert program.exists(), f"{program} is not built: scripts/build"
    folder = tmp_path_factory.mktemp("dashboard")
    address = f"127.0.0.1:{free_port()}"
    log = folder / "run.log"
    command = [str(program), "run", "-f", str(write_job(folder)), "--metrics-listen", address]
    with (
        played.Played() as gpus,
        Prometheus(folder, [address, gpus.address]) as prometheus,
        log.open("w") as output,
    ):
        start = time.time()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        try:

            def steps() -> float:
                query = f'min(paceline_steps_total{{job!="{played.JOB}"}})'
                result = prometheus.ask("query", query=query)["result"]
                return float(result[0]["value"][1]) if result else 0

            wait_until("first steps", lambda: steps() > 20, process, log)
            time.sleep(4)
            victim = wait_until("rank 3", lambda: rank_process(process.pid, 3), process, log)
            os.kill(victim, signal.SIGKILL)
            wait_until(
                "restart",
                lambda: prometheus.ask("query", query="paceline_job_restarts_total > 0")["result"],
                process,
                log,
            )
            before = wait_until("steps", steps, process, log)
            wait_until("steps after the restart", lambda: steps() > before + 20, process, log)

            def doubled() -> bool:
                return not prometheus.ask("query", query=NEAR_ZERO)["result"]

            wait_until("counters far from zero", doubled, process, log)
            settled = time.time() + WINDOW_S + 1
            query = f'count by (namespace, job) (paceline_steps_total{{job!="{played.JOB}"}})'
            (labels,) = wait_until(
                "job", lambda: prometheus.ask("query", query=query)["result"], process, log
            )
            names = labels["metric"]["namespace"], labels["metric"]["job"]

            def enough() -> bool:
                return (
                    len(stack_and_step(Run(prometheus, start, settled, time.time(), "", *names)))
                    > 2 * WINDOW_S
                )

            wait_until("points to compare", enough, process, log)
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                scrape = answer.read().decode()
            yield Run(prometheus, start, settled, time.time(), scrape, *names)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()


def stacked_panel() -> dict[str, Any]:
    (stacked,) = [
        panel for panel in DASHBOARD["panels"] if panel["title"] == "Where each step's time goes"
    ]
    found: dict[str, Any] = stacked
    return found


def stack_and_step(run: Run) -> list[tuple[float, float]]:
    """Height of the stack and mean step time, at each point where both can be told and must be the
    same.
    """
    total: dict[float, float] = {}
    for series in run.series(stacked_panel()["targets"][0]["expr"]):
        assert set(series["metric"]) == {"phase"}
        for at, value in series["values"]:
            total[at] = total.get(at, 0) + float(value)
    selector = f'namespace="{run.namespace}",job="{run.job}"'
    (mean,) = run.series(
        f"sum(rate(paceline_step_seconds_sum{{{selector}}}[{WINDOW_S}s]))"
        f" / sum(rate(paceline_step_seconds_count{{{selector}}}[{WINDOW_S}s]))"
    )
    # What a killed rank did after its last whole step counts as time but not as a step: windows
    # with its end are left out.
    near_zero = {at for series in run.series(NEAR_ZERO) for at, _ in series["values"]}
    return [
        (total[at], float(value))
        for at, value in mean["values"]
        if at >= run.settled and at in total and at not in near_zero and math.isfinite(float(value))
    ]


@pytest.mark.parametrize(
    ("name", "expression"), queries(DASHBOARD), ids=[name for name, _ in queries(DASHBOARD)]
)
def test_query_returns_data(run: Run, name: str, expression: str) -> None:
    title = name if name.startswith("annotation") else name.rpartition(" ")[0]
    series = run.series(expression, title)
    assert series, f"{name}: no series for {run.fill(expression, title)}"
    assert any(finite(one) for one in series), f"{name}: only NaN for {run.fill(expression, title)}"


def test_variables_find_the_job(run: Run) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] != "query":
            continue
        matched = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert matched, variable["query"]["query"]
        metric, label = matched.groups()
        values = run.prometheus.ask(f"label/{label}/values", **{"match[]": run.fill(metric)})
        assert getattr(run, variable["name"]) in values


def test_phases_add_up_to_the_step_time(run: Run) -> None:
    """The stack's height is the step time: what the panel's description promises."""
    assert stacked_panel()["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    compared = stack_and_step(run)
    assert len(compared) > WINDOW_S
    for stack, step in compared:
        assert stack == pytest.approx(step, rel=0.001)


def panels_named(*titles: str) -> list[dict[str, Any]]:
    found = [panel for panel in DASHBOARD["panels"] if panel["title"] in titles]
    assert len(found) == len(titles)
    return found


def test_the_uses_of_time_add_up(run: Run) -> None:
    """Goodput and the losses are the wall time since the job's first start."""
    (panel,) = panels_named("What the job's time was used for")
    total: dict[float, float] = {}
    uses = set()
    for series in run.series(panel["targets"][0]["expr"]):
        uses.add(series["metric"]["use"])
        for at, value in series["values"]:
            total[at] = total.get(at, 0) + float(value)
    assert {"useful", "starting", "restarting"} <= uses
    assert len(total) > WINDOW_S
    assert all(share == pytest.approx(1, abs=1e-9) for share in total.values())
    # Between two scrapes, which may be older than the points that show them.
    seconds = f'paceline_job_time_seconds{{job="{run.job}"}}'
    used, scraped = (
        [float(value) for _, value in run.series(expression)[0]["values"]]
        for expression in (f"sum({seconds})", f"max(timestamp({seconds}))")
    )
    assert used[-1] - used[0] == pytest.approx(scraped[-1] - scraped[0], abs=2.5)


PICTURES = {
    "dashboard-training": [panel["title"] for panel in DASHBOARD["panels"]],
    "dashboard-goodput": [
        "Goodput",
        "Time accounted for",
        "Lost to restarts",
        "MFU",
        "Operations per second",
        "Tokens per second",
        "What the job's time was used for",
    ],
    "dashboard-clocks": [
        "Where each step's time goes",
        "Where each step's time goes on the device",
    ],
}


@pytest.mark.parametrize("picture", PICTURES, ids=list(PICTURES))
def test_panels_are_drawn(run: Run, tmp_path: Path, picture: str) -> None:
    panels = at_top(panels_named(*PICTURES[picture]))
    if picture == "dashboard-goodput":
        for panel in panels:
            if panel["gridPos"]["y"] > 0:
                panel["gridPos"]["y"] = 4
    if picture == "dashboard-clocks":  # both clocks of one job

        def ask(title: str, expression: str) -> list[dict[str, Any]]:
            return run.series(expression, "MFU")
    else:

        def ask(title: str, expression: str) -> list[dict[str, Any]]:
            return run.series(expression, title)

    folder = Path(os.environ.get("PACELINE_PICTURES", tmp_path))
    draw(drawing(panels, ask, run.start, run.end), folder / f"{picture}.png")


def test_every_rank_is_there(run: Run) -> None:
    series = run.series('paceline_step_phase_seconds_total{job="$job"}')
    ranks = {one["metric"]["rank"] for one in series}
    assert ranks == {str(rank) for rank in range(RANKS)}


def test_promtool_accepts_the_metrics(run: Run) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is not installed: scripts/setup installs Debian's prometheus"
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=run.scrape,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_json_fits_grafanas_schema() -> None:
    done = subprocess.run(
        [str(ROOT / "dashboards" / "check")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["paceline-training", "paceline-nodes"])
def test_panels_do_not_overlap_and_have_names_of_their_own(name: str) -> None:
    dashboard = load(name)
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not mine & cells, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        cells |= mine
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
