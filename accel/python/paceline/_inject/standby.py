# SPDX-License-Identifier: Apache-2.0
"""A standby: an interpreter that has made the imports of a rank before the rank starts again.

The launcher starts it with the rank's own command, beside the rank. sitecustomize comes here before
Python runs the program. A standby imports what the running rank has imported, and waits. When the
gang starts again it returns, and Python runs the program as in any start. If anything is not as in
a plain start, it executes the rank's command anew. Design: docs/designs/recovery/standby.md.

The launcher's side is launcher/process/standbys.cpp.
"""

from __future__ import annotations

import os
import sys

# Not typing's own: importing it would cost every Python program of the container some milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEPS = 8  # a program that has made these has imported what a step needs
# Packages that are worth the wait and whose import only defines things. Of others nothing is
# imported ahead: some begin to act, as mpi4py does.
PACKAGES = frozenset(
    (
        "accelerate",
        "datasets",
        "einops",
        "filelock",
        "fsspec",
        "functorch",
        "huggingface_hub",
        "lightning",
        "lightning_fabric",
        "lightning_utilities",
        "mpmath",
        "networkx",
        "numpy",
        "packaging",
        "pandas",
        "peft",
        "PIL",
        "pyarrow",
        "pytorch_lightning",
        "requests",
        "safetensors",
        "scipy",
        "sklearn",
        "sympy",
        "timm",
        "tokenizers",
        "torch",
        "torchaudio",
        "torchgen",
        "torchmetrics",
        "torchvision",
        "tqdm",
        "transformers",
        "triton",
        "yaml",
    )
)
# Parts of them that start processes.
ACTIVE = ("torch._inductor",)
# What a launcher sets anew for each attempt, and the numbers of a rank, which a spare gets with its
# place. No import reads more of it than whether the rank is 0.
OF_THE_ATTEMPT = frozenset(
    (
        "CROSS_RANK",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PACELINE_ATTEMPT",
        "PACELINE_NODE_RANK",
        "PACELINE_RESTARTS",
        "RANK",
        "ROLE_RANK",
        "TORCHELASTIC_RESTART_COUNT",
    )
)
ELSEWHERE = "0\n"  # the writer of a record that a spare has from a rank on another node
HARMLESS_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


class Unfit(Exception):
    """This process is not what a plain start would make."""


# In a rank.


def watch(file: str, environment: dict[str, str | None] | None = None) -> None:
    """Tells the launcher what this process has imported, after its first steps. `environment` is
    what the program had changed when it imported torch: given in a process that was a standby,
    where torch is there already.
    """
    from paceline._core import imports

    before, process = dict(os.environ), os.getpid()
    changed = environment or {}

    def asked_for_torch() -> None:
        names = before.keys() | os.environ.keys()
        changed.clear()
        changed.update({n: os.environ.get(n) for n in names if before.get(n) != os.environ.get(n)})

    def tracing_acts(_: Any) -> None:
        from paceline._core import marks

        left = [STEPS]

        def stepped(_: Any) -> None:
            left[0] -= 1
            if left[0] > 0:
                return
            marks.step_ended.remove(stepped)
            if os.getpid() == process:
                _record(file, changed)

        marks.step_ended.append(stepped)

    imports.before_import("torch", asked_for_torch)
    imports.after_import("paceline._tracing", tracing_acts)


def _record(file: str, changed: dict[str, str | None]) -> None:
    """The first line is the process that has written it: the launcher knows its ranks by that."""
    import json

    text = f"{os.getpid()}\n{json.dumps({'environment': changed, 'modules': origins()})}\n"
    part = f"{file}.{os.getpid()}"
    try:
        with open(part, "w") as out:  # noqa: PTH123 - pathlib would be imported into every program
            out.write(text)
        os.replace(part, file)  # noqa: PTH105
    except OSError:  # a full disk, a folder that is gone: the next start imports
        pass


def origins() -> dict[str, str]:
    """The file of each imported module, in the order of the imports; "" if it has none."""
    found = {}
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        found[name] = origin if isinstance(origin, str) else ""
    return found


# In a standby.


def wait(file: str, descriptor: int) -> dict[str, str | None]:
    """Imports, tells the launcher that it is ready, and returns when the rank is to start. Does not
    return if it is not needed, or unfit. Returns what `watch` is to be told.
    """
    import socket

    launcher = socket.socket(fileno=descriptor)
    launcher.set_inheritable(False)
    try:
        adjustment = _first_victim()
        environment = _prepare(file, descriptor)
        files = _stamps(origins().values())
        launcher.sendall(f"ready {_own_memory()}\n".encode())
    except Exception as problem:
        kind = "" if isinstance(problem, Unfit) else f"{type(problem).__name__}: "
        launcher.sendall(f"unfit {kind}{problem}"[:200].encode() + b"\n")
        os._exit(1)
    parts = []
    while part := launcher.recv(1 << 20):
        parts.append(part)
    if not parts:  # the launcher has ended, or does not want it
        os._exit(0)
    launcher.close()
    start = dict(one.split(b"=", 1) for one in b"".join(parts).split(b"\0") if one)
    _restore(adjustment)
    if _stamps(files) != files or not _takes(start):
        _start_anew(start)
    return environment


def _prepare(file: str, descriptor: int) -> dict[str, str | None]:
    """Makes the imports. Returns the environment that the program had changed before them."""
    import json

    with open(file) as record:  # noqa: PTH123
        writer = record.readline()
        told = json.load(record)
    if writer == ELSEWHERE and told["environment"]:
        # What that rank has set may hold its number, as the name of a cache's folder.
        raise Unfit(f"the program sets {', '.join(told['environment'])} before it imports torch")
    known: dict[str, str] = told["modules"]
    environment: dict[str, str | None] = told["environment"]
    path, arguments, folder = list(sys.path), list(sys.argv), os.getcwd()  # noqa: PTH109
    before = {name: os.environ.get(name) for name in environment}
    _set(environment)
    _import(known)
    _set(before)
    if (sys.path, sys.argv, os.getcwd()) != (path, arguments, folder):  # noqa: PTH109
        raise Unfit("an import has changed sys.path, sys.argv or the working directory")
    for name, origin in origins().items():
        # The program's own module is here before it runs; multiprocessing gives it another name.
        if name not in ("__main__", "__mp_main__") and known.get(name) != origin:
            there = known.get(name, "nowhere") or "built in"
            raise Unfit(f"module {name} is from {origin or 'built in'}, in the rank from {there}")
    _check_open_files(descriptor)
    return environment


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _import(known: dict[str, str]) -> None:
    import importlib

    for name, origin in known.items():
        wanted = name.partition(".")[0] in PACKAGES and not name.startswith(ACTIVE)
        if not wanted or not origin.startswith("/") or name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Unfit(f"import {name}: {type(error).__name__}: {error}") from error


def _check_open_files(descriptor: int) -> None:
    """An import that has opened a device or a connection, or started a process, does more than
    define things.
    """
    import stat

    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) == descriptor or int(name) < 3:
            continue
        try:
            mode = os.stat(f"/proc/self/fd/{name}").st_mode  # noqa: PTH116
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except OSError:  # that of listdir
            continue
        harmless = os.path.basename(target) in HARMLESS_DEVICES  # noqa: PTH119
        if stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and not harmless):
            raise Unfit(f"an import has opened {target}")
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
        with open(f"/proc/self/task/{thread}/children") as children:  # noqa: PTH123
            if children.read().strip():
                raise Unfit("an import has started a process")


def _stamps(files: Any) -> dict[str, tuple[int, int]]:
    """Which file it is, and when it was last written; of a file that is gone nothing."""
    stamps = {}
    for file in files:
        try:
            found = os.stat(file)  # noqa: PTH116
        except OSError:
            continue
        stamps[file] = (found.st_ino, found.st_mtime_ns)
    return stamps


def _takes(start: dict[bytes, bytes]) -> bool:
    """Sets what belongs to the attempt. False if other variables differ from this process's."""
    with open("/proc/self/environ", "rb") as environ:  # noqa: PTH123
        own = dict(one.split(b"=", 1) for one in environ.read().split(b"\0") if b"=" in one)
    own.pop(b"PACELINE_STANDBY_SOCKET", None)
    differ = {os.fsdecode(name) for name in own.keys() | start if own.get(name) != start.get(name)}
    becomes_zero = "RANK" in differ and b"0" in (own.get(b"RANK"), start.get(b"RANK"))
    if differ - OF_THE_ATTEMPT or becomes_zero:
        return False
    values = {name: start.get(os.fsencode(name)) for name in differ}
    _set({name: value if value is None else os.fsdecode(value) for name, value in values.items()})
    return True


def _start_anew(start: dict[bytes, bytes]) -> None:
    """Executes the rank's command in this process, as the launcher does in a new one."""
    import fcntl
    import signal

    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2:
            try:
                fcntl.fcntl(int(name), fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            except OSError:  # that of listdir
                pass
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
        signal.signal(ignored, signal.SIG_DFL)
    with open("/proc/self/cmdline", "rb") as cmdline:  # noqa: PTH123
        command = cmdline.read().split(b"\0")[:-1]
    os.execvpe(command[0], command, start)


def _first_victim() -> str:
    """Without memory the kernel ends this process first. Returns what was set before."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123
            before = file.read()
            for value in ("1000", before, "1000"):  # it must also be allowed to go back
                file.seek(0)
                file.write(value)
                file.flush()
            return before
    except OSError:
        return ""


def _restore(adjustment: str) -> None:
    if adjustment:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write(adjustment)


def _own_memory() -> int:
    """Bytes that are no pages of files: the rank shares those."""
    with open("/proc/self/smaps_rollup") as file:  # noqa: PTH123
        return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) * 1024
