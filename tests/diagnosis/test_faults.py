# SPDX-License-Identifier: Apache-2.0
"""Injected faults, each with the verdict that the launcher must reach, and clean runs, which must
raise no alarm. Real PyTorch ranks train under `paceline run`; the job ends at the first verdict.

Without PACELINE_DIAGNOSE_ALL=1 (make diagnose) only some are run: the rest takes minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from runs import Told, run

ALL = os.environ.get("PACELINE_DIAGNOSE_ALL") == "1"
CLEAN_RUNS = 10 if ALL else 1
SECONDS = 15  # how long a run without an alarm is watched
only_all = pytest.mark.skipif(not ALL, reason="make diagnose runs it")


@dataclass(frozen=True)
class Fault:
    name: str
    verdict: str  # "": no alarm
    words: str = ""
    stacks: bool = False
    ranks: int = 2
    begins: int = 40  # at this step
    quick: bool = False  # also in make test
    besides: tuple[str, ...] = ()  # true of a busy machine, and not the fault


FAULTS = [
    Fault("slow loader", "bottleneck (data)", begins=1),
    Fault("slow decode in one worker", "bottleneck (data)", begins=1),
    Fault("slow rank", "straggler of rank 1", "forward", quick=True, besides=("processor",)),
    Fault("becomes slower", "regression", "forward grew most", begins=350),
    Fault("hung rank outside a collective", "hang of rank 1", "in forward", True, quick=True),
    Fault("hung rank in a collective", "hang of rank 1", "does not run", True),
    Fault("mismatched collectives", "mismatch of rank 0", "barrier", True),
    Fault("crash", "failure of rank 1", "last lines of its log"),
    Fault("loss.item() every step", ""),
    Fault("tiny batches", "bottleneck (tiny_batches)", ranks=1, besides=("processor",)),
    Fault("slow checkpoint", "bottleneck (checkpoint)"),
    Fault("evaluation", ""),
    Fault("full disk", "failure of rank 0", "disk"),
]


def check(fault: Fault, told: Told, report: Callable[[str, object], None]) -> None:
    """The first verdict is the right one; the report's properties make the table."""
    assert told.began is not None, told.output
    first = next((each for each in told.verdicts if each.kind not in fault.besides), None)
    report("fault", fault.name)
    report("verdict", str(first or "none"))
    report("seconds", round(first.after, 1) if first else "")
    report("stacks", len(told.stacks))
    print(
        f"| {fault.name} | {first or 'none'} | {f'{first.after:.1f} s' if first else ''} |"
        f" {'all ranks' if len(told.stacks) == fault.ranks else ''} |"
    )
    assert str(first or "") == fault.verdict, told.output
    assert first is None or fault.words in first.text, first
    if fault.stacks:
        assert told.stacks == set(range(fault.ranks)), told.output
        assert "Python, the main thread last" in told.output


def marked(faults: list[Fault]) -> list[object]:
    return [
        pytest.param(fault, id=fault.name, marks=() if fault.quick else only_all)
        for fault in faults
    ]


@pytest.mark.parametrize("fault", marked(FAULTS))
def test_fault(
    fault: Fault, build: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    told = run(
        build,
        tmp_path,
        fault.name,
        ranks=fault.ranks,
        seconds=60 if fault.verdict else SECONDS + 5,
        until=lambda told: any(each.kind not in fault.besides for each in told.verdicts),
        settings={"FROM": str(fault.begins), "LASTS": str(SECONDS)},
    )
    check(fault, told, record_property)


@only_all
def test_slow_link(
    build: Path,
    tmp_path: Path,
    slow_loopback: tuple[str, ...],
    record_property: Callable[[str, object], None],
) -> None:
    told = run(build, tmp_path, "slow link", within=slow_loopback, settings={"FROM": "1"})
    check(Fault("slow link", "bottleneck (communication)"), told, record_property)


@only_all
def test_stolen_processor_time(
    build: Path,
    tmp_path: Path,
    busy_processor: Callable[[int], None],
    record_property: Callable[[str, object], None],
) -> None:
    processor = 1 % (os.cpu_count() or 1)
    name = "stolen processor time"
    fault = Fault(name, "straggler of rank 1", "no processor", besides=("processor",))
    told = run(
        build,
        tmp_path,
        name,
        seconds=90,  # a machine that is busy otherwise slows down both ranks
        until=lambda told: any(each.kind not in fault.besides for each in told.verdicts),
        on_begin=lambda: busy_processor(processor),
    )
    check(fault, told, record_property)


@only_all
def test_out_of_memory(
    build: Path,
    tmp_path: Path,
    memory_limit: Path,
    record_property: Callable[[str, object], None],
) -> None:
    join = f'echo $$ > {memory_limit}/cgroup.procs; exec "$@"'
    told = run(build, tmp_path, "out of memory", within=("sh", "-c", join, "join"))
    check(
        Fault("out of memory", "failure of rank 1", "Raise the container's memory limit"),
        told,
        record_property,
    )


@pytest.mark.parametrize("number", range(1, CLEAN_RUNS + 1))
def test_clean_run(
    number: int, build: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    clean = Fault(f"none (run {number})", "", besides=("processor",))
    told = run(
        build,
        tmp_path,
        "none",
        seconds=SECONDS,
        until=lambda told: any(each.kind not in clean.besides for each in told.verdicts),
    )
    check(clean, told, record_property)


@only_all
def test_a_gang_that_hangs_restarts_if_it_is_told_to(build: Path, tmp_path: Path) -> None:
    told = run(
        build,
        tmp_path,
        "hung rank outside a collective",
        seconds=30,
        until=lambda told: "ends: " in told.output,
        settings={"PACELINE_ON_HANG": "Restart"},
    )
    assert "job Failed: rank 1 on local-worker-1 hung; all 0 restarts" in told.output, told.output
    assert [each.kind for each in told.verdicts][:1] == ["hang"]
