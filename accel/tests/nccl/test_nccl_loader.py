# SPDX-License-Identifier: Apache-2.0
"""NCCL's own loader takes the plugin, for each version of the interface that this NCCL knows.

It needs no GPU: NCCL's wheel has its symbols, so that the function which opens a plugin can be
called by its address, with a communicator of zeros. The pinned PyTorch brings an NCCL;
`make test-nccl` runs this file with the newest one, which PACELINE_NCCL names.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def libnccl() -> Path | None:
    if named := os.environ.get("PACELINE_NCCL"):
        return Path(named)
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        library = Path(folder) / "nccl" / "lib" / "libnccl.so.2"
        if library.exists():
            return library
    return None


NCCL = libnccl()
pytestmark = pytest.mark.skipif(
    NCCL is None, reason="this interpreter has no nvidia-nccl; the pinned PyTorch's has one"
)

# The highest version of the interface that a release of NCCL knows, and what the plugin asks of it.
KNOWN = {(2, 30): (6, "counted, not timed"), (2, 32): (7, "")}

PROGRAM = """
import ctypes, mmap, os, struct, sys, time
nccl_path, plugin, paceline_path, init_at, finalize_at, version_at = sys.argv[1:]
paceline = ctypes.CDLL(paceline_path)  # as Python's layer loads it: RTLD_LOCAL
assert paceline.paceline_open(None) == 0
nccl = ctypes.CDLL(nccl_path)
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
print("version", version.value)
base = ctypes.cast(nccl.ncclGetVersion, ctypes.c_void_p).value - int(version_at, 16)
def call(at, communicator):
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + int(at, 16))(communicator)
communicator = ctypes.create_string_buffer(1 << 22)
assert call(init_at, ctypes.addressof(communicator)) == 0
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libpaceline" in line}
print("libraries", *sorted(os.path.basename(path) for path in maps))
fd = paceline.paceline_ring_fd()
memory = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
end = time.monotonic() + float(os.environ["PATIENCE_S"])
while not (capabilities := struct.unpack_from("<Q", memory, 224)[0]) and time.monotonic() < end:
    time.sleep(0.01)  # the plugin's thread tells the ring 20 times a second
print("capabilities", capabilities)
assert call(finalize_at, ctypes.addressof(communicator)) == 0
print("still mapped", any("libpaceline_nccl" in line for line in open("/proc/self/maps")))
assert paceline.paceline_close() == 0
print("ended")
"""


@pytest.fixture(scope="module")
def addresses() -> dict[str, str]:
    """Of NCCL's functions within its library."""
    listed = subprocess.run(["nm", str(NCCL)], stdout=subprocess.PIPE, text=True, check=True).stdout
    wanted = r"^([0-9a-f]+) [tTW] (?:_Z\d+)?(ncclProfilerPluginInit|ncclProfilerPluginFinalize|ncclGetVersion)(?:P8ncclComm)?$"
    found = {name: at for at, name in re.findall(wanted, listed, re.MULTILINE)}
    assert len(found) == 3, found
    return found


def loaded(
    runtime: Path,
    addresses: dict[str, str],
    plugin: Path,
    folder: Path,
    program: str = PROGRAM,
    **environment: str,
) -> str:
    """What a process says that lets NCCL open the plugin."""
    log = folder / "nccl.log"
    given = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL", "PACELINE"))
    }
    given |= {
        "NCCL_PROFILER_PLUGIN": str(plugin),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(log),
    }
    names = ("ncclProfilerPluginInit", "ncclProfilerPluginFinalize", "ncclGetVersion")
    run = subprocess.run(
        [sys.executable, "-c", program, str(NCCL), str(plugin), str(runtime / "lib/libpaceline.so")]
        + [addresses[name] for name in names],
        env={"PATIENCE_S": "10", **given, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    said = run.stdout + (log.read_text() if log.exists() else "")
    assert run.returncode == 0 and "ended\n" in said, said
    return said


def without(plugin: Path, versions: range, folder: Path) -> Path:
    """The plugin as one that lacks some symbols; libpaceline.so beside it as in the runtime."""
    raw = plugin.read_bytes()
    for version in versions:
        name = b"\0ncclProfiler_v%d\0" % version
        assert raw.count(name) >= 1
        raw = raw.replace(name, b"\0ncclProfiler_x%d\0" % version)
    changed = folder / plugin.name
    changed.write_bytes(raw)
    shutil.copy(plugin.parent / "libpaceline.so", folder)
    return changed


@pytest.mark.parametrize("highest", [3, 4, 5, 6, 7])
def test_nccl_takes_the_highest_version_that_both_know(
    runtime: Path, addresses: dict[str, str], tmp_path: Path, highest: int
) -> None:
    plugin = runtime / "lib" / "libpaceline_nccl.so"
    if highest < 7:
        plugin = without(plugin, range(highest + 1, 8), tmp_path)
    said = loaded(runtime, addresses, plugin, tmp_path)
    (version,) = re.findall(r"^version (\d+)$", said, re.MULTILINE)
    known, line = KNOWN[int(version) // 10000, int(version) // 100 % 100]
    assert f"PROFILER/Plugin: Loaded Paceline (v{min(highest, known)})" in said, said
    # The process has one libpaceline.so, loaded before the plugin and from another folder.
    assert "libraries libpaceline.so libpaceline_nccl.so\n" in said
    assert "capabilities 4\n" in said, "the plugin told the ring of another libpaceline.so"
    assert "still mapped True\n" in said, "NCCL unloaded code that a thread runs"
    assert ("paceline: NCCL" in said) == bool(line) and line in said


@pytest.mark.parametrize("off", ["PACELINE_NCCL_PROFILER=Disabled", "PACELINE_DISABLE=1"])
def test_a_plugin_that_is_turned_off_asks_for_nothing(
    runtime: Path, addresses: dict[str, str], tmp_path: Path, off: str
) -> None:
    name, _, value = off.partition("=")
    plugin = runtime / "lib" / "libpaceline_nccl.so"
    program = PROGRAM
    if name == "PACELINE_DISABLE":  # the ring is off, too
        start, end = program.index("fd = "), program.index("assert call(finalize_at")
        program = program[:start] + program[end:]
        program = program.replace("paceline_open(None) == 0", "paceline_open(None) != 0")
        program = program.replace("paceline_close() == 0", "paceline_close() != 0")
    said = loaded(runtime, addresses, plugin, tmp_path, program, PATIENCE_S="0", **{name: value})
    assert "Loaded Paceline" in said, said
    assert "Profiler event mask" not in said and "paceline:" not in said, said
    assert "capabilities 4" not in said
