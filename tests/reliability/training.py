# SPDX-License-Identifier: Apache-2.0
"""Jobs that count steps into files of the machine, which can be read while the API server is away.

A rank does a step every tenth of a second and saves every tenth step. It continues from the last
step that it saved. Times are the machine's uptime, the same clock in every container.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs import JobHandle, job, role, trainer
from kube import Kube, Object
from testcluster.state import DATA

FOLDER = DATA / "reliability"  # all nodes see the machine's disk; `cluster down` removes it
SAVED_EVERY = 10
STEPS = f"""
cd /steps
n=0
[ -e saved.$RANK ] && read n <saved.$RANK
while [ ! -e go ]; do
  n=$((n + 1))
  read up _ </proc/uptime
  echo "$n $PACELINE_ATTEMPT $up" >>steps.$RANK
  if [ $((n % {SAVED_EVERY})) = 0 ]; then
    echo $n >new.$RANK && mv new.$RANK saved.$RANK
  fi
  sleep 0.1
done
"""


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Step:
    number: int
    attempt: int
    at: float


@dataclass
class Training:
    """One job and the files of its ranks."""

    handle: JobHandle
    folder: Path
    ranks: int

    def steps(self, rank: int) -> list[Step]:
        file = self.folder / f"steps.{rank}"
        if not file.exists():
            return []
        # A rank that is killed may leave a part of a line.
        lines = [line.split() for line in file.read_text().splitlines()]
        return [Step(int(n), int(a), float(at)) for n, a, at in (w for w in lines if len(w) == 3)]

    def all_step_since(self, moment: float) -> bool:
        last = [self.steps(rank)[-1:] for rank in range(self.ranks)]
        return all(step and step[0].at > moment for step in last)

    def first_step(self) -> float:
        """When the last of the ranks did its first step."""
        return max(self.steps(rank)[0].at for rank in range(self.ranks))

    def wait_trains(self, since: float, limit: float = 120) -> None:
        deadline = time.monotonic() + limit
        while not self.all_step_since(since):
            assert time.monotonic() < deadline, f"{self.handle.name} does not train\n{self.shown()}"
            time.sleep(0.1)

    def shown(self) -> str:
        return self.handle.kube.describe(self.handle.namespace)

    def stood_still(self, since: float) -> float:
        """The longest time in which some rank did no step."""
        return max(
            later.at - earlier.at
            for rank in range(self.ranks)
            for earlier, later in pairs(self.steps(rank))
            if later.at > since
        )

    def repeated(self) -> int:
        """Steps that a rank did twice; of the rank that did most."""
        return max(
            len(steps) - len({step.number for step in steps})
            for steps in (self.steps(rank) for rank in range(self.ranks))
        )

    def end(self) -> None:
        (self.folder / "go").touch()


def pairs(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    return zip(steps, steps[1:], strict=False)


def body(name: str, folder: Path, ranks: int, requests: dict[str, str], spares: int = 0) -> Object:
    container = trainer(STEPS, requests)
    container["volumeMounts"] = [{"name": "steps", "mountPath": "/steps"}]
    volume = {"name": "steps", "hostPath": {"path": str(folder)}}
    policy: Object = {"gracePeriod": "2s", "forceDeleteAfter": "10s"}
    made = job(name, failurePolicy=policy | ({"spares": spares} if spares else {}))
    made["spec"]["roles"] = [role("worker", ranks, container, volumes=[volume])]
    return made


def prepare(
    kube: Kube,
    namespace: str,
    name: str,
    ranks: int,
    requests: dict[str, str],
    spares: int = 0,
) -> tuple[Training, Object]:
    """A job that is not created yet, and its object."""
    folder = FOLDER / namespace / name
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    training = Training(JobHandle(kube, namespace, name), folder, ranks)
    return training, body(name, folder, ranks, requests, spares)
