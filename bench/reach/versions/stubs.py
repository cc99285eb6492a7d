#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes stand-ins for the shared libraries that an installed package lacks.

PyTorch on PyPI for Linux links CUDA's libraries, which are packages of their own with gigabytes in
them. Where there is no GPU, none of their functions does anything, but PyTorch is not imported
without them. So each missing library gets one of its name, in a folder where its user looks for it.
It has the symbols that are wanted of it, with their versions. Each of its functions fails with the
number 100, which is CUDA's "no device".

usage: stubs.py FILE…: for what these files load at their start (site-packages/torch/_C.*.so).
Prints how many symbols and libraries there are. Needs readelf, nm and gcc.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

FAILURE = 100
# Functions that answer with a text, which programs print.
TEXT = re.compile(r"String$|ErrorName$|GetLastError$")

Symbol = tuple[str, str]  # name and version; many have no version, which is an empty text


@dataclass
class Elf:
    """What a shared library needs and has."""

    path: Path
    needed: list[str] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)  # where it looks first
    owners: dict[str, str] = field(default_factory=dict)  # library of each version that it needs
    undefined: list[Symbol] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)


def read(path: Path) -> Elf:
    elf = Elf(path)
    for line in _lines("readelf", "-dVW", path):
        tag, _, value = line.partition("[")
        value = value.rpartition("]")[0]
        if "(NEEDED)" in tag:
            elf.needed.append(value)
        elif "(RPATH)" in tag or "(RUNPATH)" in tag:
            origin = str(path.parent.resolve())
            elf.folders += [Path(one.replace("$ORIGIN", origin)) for one in value.split(":")]
        elif found := re.search(r"Version: \d+  File: (\S+)", line):
            owner = found[1]
        elif found := re.search(r"Name: (\S+)  Flags: \S+ +Version: \d+", line):
            elf.owners[found[1]] = owner
    for line in _lines("nm", "-D", path):
        kind, word = line.split()[-2:]
        name, _, version = word.partition("@")
        if kind == "U":
            elf.undefined.append((name, version))
        elif kind not in "wv":
            elf.defined.add(name)
    return elf


def _lines(program: str, option: str, path: Path) -> list[str]:
    told = subprocess.run([program, option, path], stdout=subprocess.PIPE, text=True, check=True)
    return told.stdout.splitlines()


def missing(files: list[Path]) -> dict[Path, set[Symbol]]:
    """The libraries that are missing to load these files, with what is wanted of each."""
    seen: dict[str, Elf] = {}
    place: dict[str, Path] = {}
    waiting = [read(path) for path in files]
    while waiting:
        elf = waiting.pop()
        seen[elf.path.name] = elf
        for name in elf.needed:
            if name in seen or name in place:
                continue
            here = next((one / name for one in elf.folders if (one / name).exists()), None)
            if here is not None:
                waiting.append(read(here))
            elif not _loads(name):
                place[name] = _folder(elf) / name
    found: dict[Path, set[Symbol]] = {path: set() for path in place.values()}
    defined = set().union(*(elf.defined for elf in seen.values()))
    process = ctypes.CDLL(None)  # with what _loads() has loaded
    for elf in seen.values():
        lacks = [name for name in elf.needed if name in place]
        for name, version in elf.undefined:
            if elf.owners.get(version) in place:
                found[place[elf.owners[version]]].add((name, version))
            elif lacks and not version and name not in defined and not hasattr(process, name):
                # No file says which library has it, and the loader looks into all of them.
                found[place[lacks[0]]].add((name, ""))
    return found


def _loads(name: str) -> bool:
    """Whether the machine has this library. What it defines is then seen in this process."""
    try:
        ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _folder(elf: Elf) -> Path:
    """Where this file looks for libraries that do not lie beside it."""
    others = [one for one in elf.folders if one.resolve() != elf.path.parent.resolve()]
    if not others:
        raise LookupError(f"{elf.path} looks for its libraries nowhere but beside itself")
    return others[0]


def source(symbols: set[Symbol]) -> str:
    lines = [
        f"long stub_fails(void) {{ return {FAILURE}; }}",
        'const char* stub_text(void) { return "there is no such library: this is a stub"; }',
    ]
    for name in sorted({name for name, _ in symbols}):
        kind, target = ("const char*", "text") if TEXT.search(name) else ("long", "fails")
        lines.append(f'{kind} {name}(void) __attribute__((alias("stub_{target}")));')
    return "\n".join(lines) + "\n"


def version_script(symbols: set[Symbol]) -> str:
    """Gives each symbol its version. Those without get none: a script of one version would put
    them all into it.
    """
    versions = defaultdict(list)
    for name, version in sorted(symbols):
        if version:
            versions[version].append(name)
    return "".join(f"{version} {{ {'; '.join(names)}; }};\n" for version, names in versions.items())


def compile_stub(library: Path, symbols: set[Symbol]) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        text, script = Path(folder, "stub.c"), Path(folder, "versions")
        text.write_text(source(symbols))
        words = ["gcc", "-w", "-O1", "-fno-builtin", "-shared", "-fPIC", "-nostdlib", str(text)]
        words += [f"-Wl,-soname,{library.name}", "-o", str(library)]
        if versions := version_script(symbols):
            script.write_text(versions)
            words.append(f"-Wl,--version-script={script}")
        subprocess.run(words, check=True)


def make(files: list[Path]) -> dict[Path, set[Symbol]]:
    """Makes the libraries that are missing to load these files. Returns what was missing."""
    found = missing(files)
    for library, symbols in found.items():
        compile_stub(library, symbols)
    return found


def main() -> int:
    if len(sys.argv) < 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    found = make([Path(word) for word in sys.argv[1:]])
    print(f"stubs: {sum(map(len, found.values()))} symbols in {len(found)} libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
