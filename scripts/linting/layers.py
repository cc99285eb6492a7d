# SPDX-License-Identifier: Apache-2.0
"""Checks that includes of C++ follow the architecture: python3 -m linting.layers [--list].

A room is a folder of ROOMS with all that is below it, down to the next room. A file may include
files of its own room and of the rooms that its room names. No file may include itself through
others; a source and its header count as one file. `--list` prints which rooms each room includes
today.
"""

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

# room: rooms that it may include. A room is listed below all rooms that it includes. A name ending
# in "/" stands for the folder with all rooms below it.
ROOMS: dict[str, str] = {
    # The runtime builds alone and includes nothing from outside itself. Its headers are for others,
    # its sources for its own tests and for fuzzing.
    "accel/include": "",
    "accel/src": "",
    "accel/src/base": "accel/src",
    "accel/src/cuda": "",
    "accel/src/trace": "accel/include accel/src accel/src/base accel/src/cuda",
    "accel/src/nccl": "accel/include accel/src accel/src/base",
    "accel/src/ops": "accel/include accel/src/base",
    "accel/src/optim": "accel/include accel/src/base accel/src/cuda",
    "accel/src/comm": "accel/include accel/src accel/src/base",
    "accel/src/device": "accel/include",
    "accel/src/cupti": "accel/include accel/src accel/src/base accel/src/device",
    # The loader, from files up to pictures.
    "accel/src/loader/source": "accel/src/base",
    "accel/src/loader/order": "accel/include",
    "accel/src/loader/exchange": "accel/include accel/src/base accel/src/loader/source",
    "accel/src/loader/records": "accel/include accel/src/loader/order accel/src/loader/source",
    "accel/src/loader/shards": "accel/include accel/src/loader/order accel/src/loader/source",
    "accel/src/loader/pictures": "accel/include accel/src/base accel/src/loader/order"
    " accel/src/loader/shards accel/src/loader/source",
    "accel/tests": "accel/",
    # What programs share, from the ground up.
    "common/base": "",
    "common/contract": "common/base",
    "common/json": "common/base",
    "common/failure": "common/base common/json",
    "common/net": "common/base",
    "common/subprocess": "common/base",
    "common/command": "common/base",
    "common/service": "common/base",
    "common/telemetry/ring": "common/base accel/include",
    "common/telemetry/stats": "common/base common/telemetry/ring accel/include",
    "common/telemetry/metrics": "common/base common/telemetry/ring common/telemetry/stats",
    "common/telemetry/slot": "common/base common/telemetry/ring accel/include",
    "common/telemetry": "common/base common/telemetry/ accel/include",
    "common/http": "common/base",
    "common/http/beast": "common/base common/http",
    "common/http/cpprest": "common/base common/http",
    "common/http/server": "common/base common/http common/net",
    "common/kube/api": "common/base common/http",
    "common/kube/client": "common/base common/http common/kube/api",
    "common/kube/connect": "common/base common/http/ common/kube/api common/kube/client",
    "common/kube/watch": "common/base common/kube/api",
    "common/kube/control": "common/base common/kube/api common/kube/watch",
    "common/kube/fake": "common/base common/http/ common/kube/api common/kube/client"
    " common/kube/watch",
    # The operator: a job, what is observed, what to do, how to do it.
    "operator/api": "common/base common/contract common/failure",
    "operator/render": "common/base common/contract common/failure common/net operator/api",
    "operator/status": "common/base operator/api",
    "operator/observe": "common/base common/contract common/failure common/kube/api operator/api",
    "operator/plan/placement": "common/contract operator/api operator/observe",
    "operator/plan/queue": "common/contract operator/plan/placement",
    "operator/plan/job": "common/contract operator/observe operator/plan/placement operator/status",
    "operator/plan/policies": "common/base common/contract common/failure operator/api"
    " operator/plan/job operator/plan/placement operator/render",
    "operator/plan": "common/contract operator/plan/",
    "operator/apply": "common/base common/contract common/kube/api common/kube/watch operator/",
    "operator": "common/ operator/",
    # The agent and the launcher: their rooms inside are free of cycles between files.
    "agent/client": "common/base common/http",
    "agent": "common/ agent/client",
    "agent/inspect": "common/base agent",
    "launcher": "common/",
    # The faces of other programs that the CLI may see: the spec, its environment, one machine.
    "cli": "common/ operator/api operator/render agent/client agent/inspect",
    # Fixtures that tests and benchmarks share.
    "testing": "common/ agent launcher accel/include",
    # Benchmarks include any part but no test.
    "bench": "accel/ common/ operator/ operator agent launcher testing",
    "tests": "accel/ common/ operator/ operator agent/ agent launcher cli testing bench",
    "cmake": "",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
GENERATED = (".pb.h",)
SOURCES = ("*.cpp", "*.hpp", "*.h", "*.cc", "*.cu", "*.cuh")
SEARCH = ("", "accel/include", "accel/src", "accel/tests")


def sources() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SOURCES],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [name for name in listed.splitlines() if Path(name).is_file()]


def resolve(including: str, name: str, known: set[str]) -> str | None:
    """The repository path of an included file, or None if it is not in the repository."""
    beside = str(PurePosixPath(including).parent / name)
    for folder in (None, *SEARCH):
        path = beside if folder is None else f"{folder}/{name}".lstrip("/")
        if path in known:
            return path
    return None


def includes(names: list[str]) -> dict[str, dict[str, int]]:
    """For each file, the files that it includes and the line of each include."""
    known = set(names)
    found: dict[str, dict[str, int]] = {}
    for name in names:
        text = Path(name).read_text()
        lines = found.setdefault(name, {})
        for match in INCLUDE.finditer(text):
            target = resolve(name, match[1], known)
            if target is not None and target != name:
                lines.setdefault(target, text.count("\n", 0, match.start(1)) + 1)
    return found


def room_of(name: str) -> str | None:
    """The longest room that holds the file."""
    for folder in PurePosixPath(name).parents:
        if str(folder) in ROOMS:
            return str(folder)
    return None


def allowed(room: str, target: str) -> bool:
    for name in ROOMS[room].split():
        if target == name.rstrip("/") or (name.endswith("/") and target.startswith(name)):
            return True
    return False


def check_table() -> list[str]:
    """A room may name only rooms above it in the table, so that the table has no cycle."""
    problems = []
    above: list[str] = []
    for room, names in ROOMS.items():
        for name in names.split():
            if not any(seen == name.rstrip("/") or seen.startswith(name) for seen in above):
                problems.append(
                    f"scripts/linting/layers.py: {room} names {name}, which is not above it"
                )
        above.append(room)
    return problems


def check_rooms(graph: dict[str, dict[str, int]]) -> list[str]:
    problems = []
    for name, targets in graph.items():
        room = room_of(name)
        if room is None:
            problems.append(
                f"{name}: in no room; add its folder to ROOMS in scripts/linting/layers.py"
            )
            continue
        for target, line in targets.items():
            other = room_of(target)
            if other is not None and other != room and not allowed(room, other):
                problems.append(f"{name}:{line}: {room} may not include {target}")
    return problems


def unit_of(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def cycles(graph: dict[str, dict[str, int]]) -> list[list[str]]:
    """Strongly connected components of more than one unit (Tarjan's algorithm)."""
    units: dict[str, set[str]] = {}
    for name, targets in graph.items():
        reached = units.setdefault(unit_of(name), set())
        reached.update(unit_of(target) for target in targets if unit_of(target) != unit_of(name))
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(unit: str) -> None:
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for target in sorted(units.get(unit, ())):
            if target not in index:
                visit(target)
                low[unit] = min(low[unit], low[target])
            elif target in stack:
                low[unit] = min(low[unit], index[target])
        if low[unit] == index[unit]:
            members = stack[stack.index(unit) :]
            del stack[stack.index(unit) :]
            if len(members) > 1:
                found.append(sorted(members))

    for unit in sorted(units):
        if unit not in index:
            visit(unit)
    return found


def main() -> int:
    graph = includes(sources())
    if sys.argv[1:] == ["--list"]:
        rooms: dict[str, set[str]] = {}
        for name, targets in graph.items():
            reached = rooms.setdefault(room_of(name) or "?", set())
            reached.update(room for target in targets if (room := room_of(target)))
        for room, reached in sorted(rooms.items()):
            print(f"{room}: {' '.join(sorted(reached - {room}))}")
        return 0
    problems = check_table() + check_rooms(graph)
    problems += ["include cycle: " + " ".join(members) for members in cycles(graph)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
