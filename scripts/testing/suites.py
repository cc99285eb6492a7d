# SPDX-License-Identifier: Apache-2.0
"""The suites of scripts/test: what each needs prepared, and the function that runs it.

A suite writes JUnit files and logs into its results folder. Failed tests are told by those files;
a suite that cannot run raises Failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testing.processes import ROOT, Failure, last_line, must, say, side_by_side, start
from testing.results import cause, shown_failures
from testing.steps import tool_path

BUILD = ROOT / "build" / "release"
DEBIAN_PYTHON = "/usr/bin/python3"
PINNED_PYTHON = "scripts/pytorch-venv"
CLUSTER = str(ROOT / "tests" / "cluster" / "cluster")
LEAST_SCHEDULES = 10_000


@dataclass(frozen=True)
class Suite:
    """A named set of tests.

    Lanes take the suites in the order of SUITES, where the long ones stand first.
    """

    about: str
    needs: tuple[str, ...]
    run: Callable[[Path], None]
    usual: bool = True  # run when no suite is named
    cluster: bool = False  # starts the test cluster, of which one runs at a time


def pytest(
    results: Path, python: str, name: str, *paths: str, env: dict[str, str] | None = None
) -> None:
    """Runs pytest with one interpreter, or with that of an environment that a script makes.

    The whole output goes to NAME.log; failures are shown in short.
    """
    for path in paths:
        if not (ROOT / path).exists():
            raise Failure(f"{path} is missing")
    interpreter = last_line([python]) if python.startswith("scripts/") else python
    log, junit = results / f"{name}.log", results / f"{name}.xml"
    command = [interpreter, "-m", "pytest", "-q", "-rfE", "--tb=short", "--durations=5"]
    command += ["-o", "junit_logging=all", f"--junitxml={junit}", *paths]
    code = start(command, log, env={"PACELINE_BUILD_DIR": str(BUILD), **(env or {})})
    lines = log.read_text(errors="replace").splitlines()
    say(*shown_failures(junit), f"{name}: {lines[-1] if lines else 'no output'}")
    if code not in (0, 1):  # 1: a test failed
        say(*lines[-40:])
        raise Failure(f"pytest of {' '.join(paths)} with {interpreter} ended with {code}")


def ctest(results: Path, preset: str, *choice: str) -> None:
    """Runs a test preset. The whole output goes to ctest.log; failures are shown in short."""
    results.mkdir(exist_ok=True)
    log, junit = results / "ctest.log", results / "ctest.xml"
    command = ["ctest", "--preset", preset, "-j", str(os.cpu_count() or 1), *choice]
    # Of a long output of a test that passed, the report keeps the end: counts stand there.
    command += ["--test-output-truncation", "head"]
    code = start([*command, "--output-junit", str(junit)], log)
    text = log.read_text(errors="replace")
    say(*(line for line in text.splitlines() if "tests passed" in line), *shown_failures(junit))
    if code not in (0, 8):  # 8: a test failed
        raise Failure(f"ctest ended with {code}: {cause(text)}")


def with_tools() -> dict[str, str]:
    return {"PATH": f"{tool_path()}:{os.environ['PATH']}"}


def run_unit(results: Path) -> None:
    ctest(results / "ours", "asan")
    ctest(results / "cpprest", "asan-cpprest")


def run_simulation(results: Path) -> None:
    ctest(results, "release", "--label-regex", "^optimised$")
    count_schedules((results / "ctest.xml").read_text(errors="replace"))


def count_schedules(report: str) -> None:
    """Tells how many schedules the simulation ran, and fails if a test of them was lost."""
    counts = [int(count) for count in re.findall(r"^(\d+) schedules, ", report, re.MULTILINE)]
    say(f"the simulation ran {sum(counts)} schedules in {len(counts)} tests")
    if sum(counts) < LEAST_SCHEDULES:
        raise Failure(f"the simulation ran {sum(counts)} schedules; {LEAST_SCHEDULES} are wanted")


def run_tsan(results: Path) -> None:
    ctest(results, "tsan")


def run_runtime_threads(results: Path) -> None:
    ctest(results, "tsan", "--tests-regex", "^accel[.]")


def run_runtime(results: Path) -> None:
    """The newest PyTorch has every test, the oldest one those of what attaches to it by itself.

    Two groups side by side: most of a test's time is one processor's import.
    """

    def both() -> None:
        attached = [f"accel/tests/{name}" for name in ("inject", "package", "save", "trace")]
        pytest(results, DEBIAN_PYTHON, "debian", *attached)
        pytest(results, DEBIAN_PYTHON, "launch-debian", "tests/launch")
        pytest(results, DEBIAN_PYTHON, "diagnosis", "tests/diagnosis")
        pytest(results, PINNED_PYTHON, "launch-pinned", "tests/launch/test_passthrough.py")
        small = "tests/frameworks/test_small_frameworks.py"
        pytest(results, DEBIAN_PYTHON, "small-frameworks", small)

    side_by_side(results, lambda: pytest(results, PINNED_PYTHON, "pinned", "accel/tests"), both)


def run_breakdown(results: Path) -> None:
    pytest(results, DEBIAN_PYTHON, "debian", "tests/breakdown")
    pytest(results, PINNED_PYTHON, "pinned", "tests/breakdown")


def run_diagnosis(results: Path) -> None:
    """Every fault, and the table of what was found."""
    pytest(
        results, DEBIAN_PYTHON, "diagnosis", "tests/diagnosis", env={"PACELINE_DIAGNOSE_ALL": "1"}
    )
    lines = re.findall(r"^\| .*\|$", (results / "diagnosis.xml").read_text(), re.MULTILINE)
    say("| fault | verdict | after | stacks |", "|---|---|---|---|", *lines)


def run_conformance(results: Path) -> None:
    program = BUILD / "bin" / "api_conformance_test"
    if not os.access(program, os.X_OK):
        raise Failure(f"{program.relative_to(ROOT)} is missing")
    must([CLUSTER, "up", "--apiserver-only", "--owner", str(os.getpid())])
    try:
        server = {"PACELINE_TEST_KUBECONFIG": last_line([CLUSTER, "kubeconfig"])}
        junit = f"--gtest_output=xml:{results / 'conformance.xml'}"
        code = start([str(program), junit, "--gtest_brief=1"], env=server)
        tools = {**server, **with_tools()}
        pytest(results, DEBIAN_PYTHON, "policies", "tests/conformance", env=tools)
    finally:
        must([CLUSTER, "down"])
    if code not in (0, 1):
        raise Failure(f"api_conformance_test ended with {code}")


def run_frameworks(results: Path) -> None:
    """Runs every example, and shows the table of what worked."""
    pytest(results, DEBIAN_PYTHON, "frameworks", "tests/frameworks")
    lines = (results / "frameworks.log").read_text(errors="replace").splitlines()
    say(*(line for line in lines if line.startswith("| ")))


def run_nccl(results: Path) -> None:
    """The newest NCCL that the plugin is tested with, from its wheel."""
    home = Path(last_line(["scripts/pypi-tool", "nvidia-nccl-cu13==2.32.3"])).parents[1]
    (library,) = home.glob("lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")
    env = {"PACELINE_NCCL": str(library)}
    pytest(results, DEBIAN_PYTHON, "nccl", "accel/tests/nccl", env=env)


# Two releases of CUPTI, and one cuda.h that serves both.
CUPTI_HEADERS = (
    "nvidia-cuda-cupti-cu12==12.9.79",
    "nvidia-cuda-cupti==13.5.25",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-crt==13.0.88",
)


def run_cupti(results: Path) -> None:
    interpreter = last_line(["scripts/pypi-tool", *CUPTI_HEADERS])
    pytest(
        results,
        DEBIAN_PYTHON,
        "cupti",
        "accel/tests/cupti",
        env={"PACELINE_CUPTI_HEADERS": str(Path(interpreter).parents[1])},
    )


def _python(name: str, path: str, python: str = DEBIAN_PYTHON) -> Callable[[Path], None]:
    """A suite of one folder and one interpreter."""
    return lambda results: pytest(results, python, name, path)


def _with_tools(name: str, path: str) -> Callable[[Path], None]:
    """The same, with the programs of the test cluster on PATH."""
    return lambda results: pytest(results, DEBIAN_PYTHON, name, path, env=with_tools())


SUITES: dict[str, Suite] = {
    "scripts": Suite(
        "what scripts/ is made of: image archives, results, the cache",
        (),
        _python("scripts", "tests/scripts"),
    ),
    "conformance": Suite(
        "the Kubernetes client on the fake and the real API server, and the chart's admission"
        " policies, converted examples of other projects and what is written for those on the"
        " real one",
        ("build", "tools", "published"),
        run_conformance,
        cluster=True,
    ),
    "e2e": Suite(
        "jobs and failures on the real two-node cluster",
        ("build", "tools"),
        _with_tools("e2e", "tests/e2e"),
        cluster=True,
    ),
    "runtime": Suite(
        "the runtime on the newest PyTorch, and what attaches by itself on the oldest; launcher;"
        " an old glibc and musl; XGBoost",
        ("build", "pytorch", "portable", "published", "xgboost"),
        run_runtime,
    ),
    "unit": Suite(
        "C++ unit tests under AddressSanitizer and UndefinedBehaviorSanitizer",
        ("asan",),
        run_unit,
    ),
    "simulation": Suite(
        "the operator in thousands of simulated schedules, and the recorder",
        ("build",),
        run_simulation,
    ),
    "dashboard": Suite(
        "every query of the dashboard on a real Prometheus and a real run",
        ("build", "grafana"),
        _python("dashboard", "tests/dashboard"),
    ),
    "trainers": Suite(
        "unmodified trainers (Transformers, Lightning, Accelerate, …): accelerated against plain",
        ("build", "trainers"),
        _python("pinned", "tests/trainers", "scripts/trainers-venv"),
    ),
    "kernels": Suite(
        "the GPU kernels for every architecture, by both CUDA majors; needs no GPU",
        (),
        _python("kernels", "tests/gpu"),
    ),
    "breakdown": Suite(
        "injected truth against the measured breakdown", ("build", "pytorch"), run_breakdown
    ),
    "wheel": Suite(
        "the Python package, built as a wheel and installed beside both PyTorch versions",
        ("pytorch", "portable"),
        _python("wheel", "tests/package"),
    ),
    "chart": Suite(
        "the Helm chart: schema, security contexts, privileges",
        ("tools",),
        _with_tools("chart", "tests/chart"),
    ),
    "rdma": Suite(
        "a real RDMA device, in a virtual machine with soft RoCE",
        ("rdma-tests", "guest"),
        _python("rdma", "tests/rdma"),
        usual=False,
    ),
    "tsan": Suite(
        "unit tests of code with threads, under ThreadSanitizer", ("tsan",), run_tsan, usual=False
    ),
    "runtime-threads": Suite(
        "those of the runtime, whose threads live in users' processes",
        ("tsan-runtime",),
        run_runtime_threads,
        usual=False,
    ),
    "oldest": Suite(
        "every test of the runtime on the oldest PyTorch, Debian's 1.13",
        ("build", "portable"),
        _python("debian", "accel/tests"),
        usual=False,
    ),
    "diagnosis": Suite(
        "every injected fault against what the launcher finds, and clean runs",
        ("build",),
        run_diagnosis,
        usual=False,
    ),
    "kueue": Suite(
        "jobs of a LocalQueue under Kueue's own controller, and nodes of KWOK that come and go, on"
        " the real two-node cluster",
        ("build", "tools", "kueue-tools"),
        _with_tools("kueue", "tests/kueue"),
        usual=False,
        cluster=True,
    ),
    "schedulers": Suite(
        "jobs that Volcano and Coscheduling bind, on the real two-node cluster",
        ("build", "tools", "scheduler-tools"),
        _with_tools("schedulers", "tests/schedulers"),
        usual=False,
        cluster=True,
    ),
    "pod-groups": Suite(
        "jobs that Kubernetes 1.37 binds as its own gangs, on a real two-node cluster of it",
        ("build", "tools", "kubernetes-1.37"),
        lambda results: pytest(
            results,
            DEBIAN_PYTHON,
            "pod-groups",
            "tests/schedulers",
            env={**with_tools(), "PACELINE_CLUSTER_PROFILE": "1.37"},
        ),
        usual=False,
        cluster=True,
    ),
    "reliability": Suite(
        "each part of a real three-node cluster killed while jobs run and wait; writes a page",
        ("build", "tools"),
        _with_tools("reliability", "tests/reliability"),
        usual=False,
        cluster=True,
    ),
    "frameworks": Suite(
        "the examples of every framework with its real package: start, restart, step telemetry",
        ("build",),
        run_frameworks,
        usual=False,
    ),
    "nccl": Suite(
        "the newest NCCL loads its profiler plugin, by each version of its interface; 0.3 GB",
        ("build",),
        run_nccl,
        usual=False,
    ),
    "cupti": Suite(
        "our declarations of CUPTI against the headers of two releases; 25 MB, cached",
        (),
        run_cupti,
        usual=False,
    ),
}
