# SPDX-License-Identifier: Apache-2.0
"""What suites need before they run: builds, tools and environments.

A step does nothing when its work is done already. Steps run side by side, but for builds: two at
once would need twice the memory and gain no time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prune_cache import prune

from testing.processes import last_line, must

_compiling = threading.Lock()


def tool_path() -> str:
    """Folder of the test tools (kubectl, helm, …)."""
    return last_line(["tests/cluster/build-tools", "--print-path"])


def _build(preset: str, *targets: str) -> Callable[[Path], None]:
    def step(log: Path) -> None:
        with _compiling:
            must(["scripts/build", preset, *targets], log)

    return step


def _run(*commands: list[str]) -> Callable[[Path], None]:
    def step(log: Path) -> None:
        for command in commands:
            must(command, log)

    return step


def _tools(log: Path) -> None:
    must(["tests/cluster/build-tools"], log)
    prune(Path(tool_path()).parent, "[0-9a-f]" * 16)


STEPS: dict[str, Callable[[Path], None]] = {
    "build": _build("release", "all", "sim_test", "api_conformance_test"),
    "rdma-tests": _build("release", "all", "accel_test"),
    "asan": _build("asan", "paceline_unit_tests"),
    "tsan": _build("tsan", "paceline_threaded_tests"),
    "tsan-runtime": _build("tsan", "accel_test"),
    "tools": _tools,
    "kueue-tools": _run(
        ["tests/cluster/build-tools", "--with-kueue"], ["tests/cluster/build-tools", "--with-kwok"]
    ),
    "kubernetes-1.37": _run(["tests/cluster/build-tools", "--profile", "1.37"]),
    "scheduler-tools": _run(["tests/cluster/build-tools", "--with-schedulers"]),
    "pytorch": _run(["scripts/pytorch-venv"]),
    "published": _run(["tests/conformance/published/fetch"]),
    "xgboost": _run(["scripts/framework-env", "xgboost"]),
    "trainers": _run(["scripts/trainers-venv"]),
    # The runtime as it is shipped, and an old root file system to load it in.
    "portable": _run(["scripts/runtime"], ["scripts/old-root"]),
    "grafana": _run(["dashboards/fetch"]),
    "guest": _run(["scripts/setup", "tests/rdma/packages.txt"]),
}


def prepare(needs: Iterable[str], logs: Path) -> dict[str, str]:
    """Runs the steps side by side. Returns the reason of each step that failed."""
    failed: dict[str, str] = {}
    logs.mkdir(parents=True, exist_ok=True)

    def work(step: str) -> None:
        began = time.monotonic()
        try:
            STEPS[step](logs / f"{step}.log")
            print(f"prepare {step}: {time.monotonic() - began:.0f} s", flush=True)
        except Exception as error:  # a thread's failure must reach the summary, whatever it is
            failed[step] = str(error)
            seconds = time.monotonic() - began
            print(f"prepare {step}: FAILED after {seconds:.0f} s: {error}", flush=True)

    threads = [threading.Thread(target=work, args=(step,), daemon=True) for step in needs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed
