# SPDX-License-Identifier: Apache-2.0
"""`up` and `down`: what is made, in which order, and how all of it goes away again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from . import cgroups, control_plane, network, nodes
from .state import CONTROL_CGROUP, DATA, HOST_LINK, RUN, ClusterError, Node, State, run

# What the kubelet changes for the whole machine.
SYSCTLS = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# `down` looks for this many nodes' cgroups even if the state file was never completed.
MOST_NODES = 4
LOCK = Path("/run/paceline-cluster.lock")
STARTER = RUN / "starter.pid"
# Processes are written down with the time of their start, since numbers are used again.
OWNER = RUN / "owner.pid"


def claim(owner: int | None) -> None:
    """Takes the machine for one cluster: addresses and cgroup names are fixed. What a killed or
    rebooted cluster left is removed first.

    `owner` is the test run that the cluster is for. If that run was killed, so that it could not
    remove its cluster, the next claim does. A cluster without an owner is somebody's and stays.
    """
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if RUN.exists():
            if _is_alive():
                raise ClusterError(
                    f"{RUN} exists: a cluster is up or starting; `cluster down` removes it"
                )
            down()
        RUN.mkdir(mode=0o755)
        STARTER.write_text(_identity(os.getpid()))
        if owner is not None:
            OWNER.write_text(_identity(owner))


def _identity(pid: int) -> str:
    """The process's number and start in ticks since boot; empty if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The second field is the program's name in parentheses, which may hold blanks.
    fields = stat.rpartition(") ")[2].split()
    return "" if fields[0] == "Z" else f"{pid} {fields[19]}"


def _lives(file: Path) -> bool:
    """Whether the process that the file names is still the same one."""
    try:
        written = file.read_text()
        return written != "" and _identity(int(written.split()[0])) == written
    except (OSError, ValueError, IndexError):
        return False


def _is_alive() -> bool:
    if _lives(STARTER):
        return True
    if OWNER.exists() and not _lives(OWNER):
        return False
    return bool(cgroups.members(CONTROL_CGROUP))


def up(tools: str, node_count: int, images: list[Path], profile: str) -> None:
    if not 0 <= node_count <= MOST_NODES:
        raise ClusterError(f"--nodes {node_count}: 1 to {MOST_NODES} nodes are supported")
    control_plane.LOGS.mkdir()
    DATA.mkdir(exist_ok=True)
    saved = {name: (Path("/proc/sys") / name).read_text().strip() for name in SYSCTLS}
    state = State(
        nodes=node_count,
        tools=tools,
        cgroup_form=cgroups.form(),
        sysctls=saved,
        profile=profile,
    )
    state.save()
    cgroups.create(CONTROL_CGROUP)
    network.create_fabric()
    for node in state.all_nodes:
        nodes.create(state, node)
        nodes.start_containerd(state, node)
    if state.all_nodes:
        network.route_machine(state.all_nodes)
    control_plane.start(state)
    for node in state.all_nodes:
        for image in images:
            nodes.load_image(node, image)
        nodes.start_kubelet(state, node)
        nodes.start_proxy(state, node)
    for node in state.all_nodes:
        nodes.wait_ready(state, node)


def down() -> None:
    """Removes all that `up` may have made; safe after a start or a stop that was cut off, and when
    nothing is up.
    """
    for name in [*(Node(number).cgroup for number in range(1, MOST_NODES + 1)), CONTROL_CGROUP]:
        cgroups.kill(name)
    _restore_machine()
    subprocess.run(["ip", "link", "delete", HOST_LINK], capture_output=True, check=False)
    for folder in (DATA, RUN):
        for mount in _mounts_below(folder):
            run("umount", "--lazy", mount)
        if folder.exists():
            shutil.rmtree(folder)


def _restore_machine() -> None:
    try:
        state = State.load()
    except ClusterError:
        return  # the start was cut off before anything of the machine was changed
    for name, value in state.sysctls.items():
        (Path("/proc/sys") / name).write_text(value)
    for folder in state.made_folders:
        with contextlib.suppress(OSError):  # somebody else uses it by now
            Path(folder).rmdir()


def _mounts_below(folder: Path) -> list[str]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        target = line.split()[4]
        if Path(target).is_relative_to(folder):
            found.append(target)
    return sorted(found, key=len, reverse=True)
