#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over our own translation units, in parallel, and remembers which were clean.

A unit is what the preset `lint` compiles at once: up to eight of our sources. It is checked again
when its own text, any of our files that it reaches, its compile command or .clang-tidy changed.
usage: python3 -m linting.tidy [--jobs N] [--slowest N] BUILD_FOLDER (of the preset `lint`)
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from prune_cache import prune

ROOT = Path(__file__).resolve().parents[2]
TIDY = "clang-tidy-19"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# cpprestsdk's headers do not compile with clang in C++23, nor do comparisons of nlohmann's
# documents with strings, which tests are full of: that folder and the tests are checked by g++'s
# warnings alone. What protoc writes is not ours.
SKIPPED_FOLDERS = (
    "common/http/cpprest",
    "common/http/CMakeFiles/paceline_http_cpprest",
    "agent/plugin/generated",
    "tests/",
)
# One mistake in a template can fill pages; the first lines name it.
SHOWN_LINES = 12


@functools.cache
def reach(file: Path) -> frozenset[Path]:
    """Our files that this file includes, directly or through others, and itself."""
    found = {file}
    stack = [file]
    while stack:
        current = stack.pop()
        try:
            text = current.read_text(errors="replace")
        except OSError:
            continue
        for name in INCLUDE.findall(text):
            for base in (ROOT, current.parent, ROOT / "accel" / "include"):
                candidate = (base / name).resolve()
                if candidate.is_file() and candidate not in found:
                    found.add(candidate)
                    stack.append(candidate)
    return frozenset(found)


def fingerprint(build: Path, file: Path, command: str) -> str:
    """Changes whenever the outcome of checking this unit may. The same in every checkout and build
    folder.
    """
    digest = hashlib.sha256()
    read = [ROOT / ".clang-tidy", *sorted(reach(file))]
    for text in (
        command.encode(),
        *(os.fsencode(part) + b"\0" + part.read_bytes() for part in read),
    ):
        for place, name in ((os.fsencode(build), b"BUILD"), (os.fsencode(ROOT), b"ROOT")):
            text = text.replace(place, name)
        digest.update(hashlib.sha256(text).digest())
    digest.update(subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout)
    return digest.hexdigest()


def check(build: Path, file: Path) -> tuple[str, float]:
    """Empty when clean, else what clang-tidy says; and the seconds that it took."""
    began = time.monotonic()
    run = subprocess.run(
        [TIDY, "-p", str(build), "--quiet", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - began
    if run.returncode == 0:
        return "", took
    lines = (run.stdout.strip() or run.stderr.strip()).splitlines()
    left = (
        [f"… and {len(lines) - SHOWN_LINES} more lines about {file.relative_to(ROOT)}"]
        if len(lines) > SHOWN_LINES
        else []
    )
    return "\n".join(lines[:SHOWN_LINES] + left), took


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "build", metavar="BUILD_FOLDER", help="a build folder configured by the preset `lint`"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="units at a time (default: one a core)",
    )
    parser.add_argument(
        "--slowest", type=int, default=0, metavar="N", help="name the N units that took longest"
    )
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()
    clean = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline" / "tidy"
    clean.mkdir(parents=True, exist_ok=True)
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = (Path(entry["directory"]) / entry["file"]).resolve()
        # Several of our sources are one unit, which cmake writes into its folder: headers cost more
        # than what we check.
        name = str(file.relative_to(build if file.is_relative_to(build) else ROOT))
        if not name.startswith(SKIPPED_FOLDERS):
            commands[file] = entry.get("command") or " ".join(entry["arguments"])
    if not commands:
        print(f"tidy: {build} names none of our translation units", file=sys.stderr)
        return 1

    stamps = {file: clean / fingerprint(build, file, command) for file, command in commands.items()}
    wanted = [file for file, stamp in stamps.items() if not stamp.exists()]
    wanted.sort(key=lambda file: -len(reach(file)))
    bad = 0
    began = time.monotonic()
    seconds: dict[Path, float] = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, (said, took) in zip(
            wanted, pool.map(functools.partial(check, build), wanted), strict=True
        ):
            seconds[file] = took
            if said:
                bad += 1
                print(said, flush=True)
            else:
                stamps[file].touch()
    # A stamp is an empty file; those of texts that are gone go too.
    for file, stamp in stamps.items():
        if file not in seconds:
            stamp.touch()
    prune(clean / "none", "*", days=30)
    for file in sorted(seconds, key=lambda file: -seconds[file])[: options.slowest]:
        print(f"tidy: {seconds[file]:6.1f} s {file.relative_to(ROOT)}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"tidy: {len(commands)} units, {len(wanted)} checked now, {bad} with findings;"
        f" {time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor"
        " time"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
