# SPDX-License-Identifier: Apache-2.0
"""The launcher as PID 1 of containers whose only C library is musl: it installs itself, meets the
other replica, starts the user's program, restarts it, and puts nothing into it that needs glibc.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from ports import free_port

# Every fact is printed by a program that musl loaded. The runtime is for glibc: opening it must
# fail cleanly, as Python's ctypes would see.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char* get(const char* name) { const char* value = getenv(name); return value ? value : "-"; }
int main(void) {
  static char said[4096], line[512];
  setvbuf(stdout, said, _IOFBF, sizeof said);  /* all of it at once, or nothing: musl writes the first line by itself */
  int musl = 0, glibc = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    if (strstr(line, "/ld-musl-")) musl = 1;
    if (strstr(line, "libc.so.6") || strstr(line, "ld-linux") || strstr(line, "libpaceline")) glibc = 1;
  }
  const char* attempt = get("PACELINE_ATTEMPT");
  printf("rank %s of %s attempt %s musl %d glibc %d\\n", get("RANK"), get("WORLD_SIZE"), attempt, musl, glibc);
  printf("LD_PRELOAD=%s LD_LIBRARY_PATH=%s LD_AUDIT=%s\\n", get("LD_PRELOAD"), get("LD_LIBRARY_PATH"), get("LD_AUDIT"));
  printf("runtime %s\\n", dlopen("/opt/paceline/lib/libpaceline.so", RTLD_NOW) ? "loaded" : "refused");
  fflush(stdout);
  if (strcmp(get("RANK"), "1") == 0 && strcmp(attempt, "0") == 0) return 5;
  if (strcmp(attempt, "0") == 0) pause();
  return 0;
}
"""
NODES = 2

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="a root file system and its namespaces need root"
)


@pytest.fixture
def root(build: Path, tmp_path: Path) -> Iterator[Path]:
    """A root file system: musl's loader, a small shell, the user's program, and the image's runtime
    waiting to be installed.
    """
    assert shutil.which("musl-gcc"), (
        "musl-gcc is missing: scripts/setup installs Debian's musl-tools"
    )
    home = tmp_path / "root"
    for folder in ("bin", "lib", "proc", "dev", "tmp", "opt"):
        (home / folder).mkdir(parents=True)
    (tmp_path / "main.c").write_text(PROGRAM)
    subprocess.run(
        ["musl-gcc", "-O1", tmp_path / "main.c", "-o", home / "bin" / "train"], check=True
    )
    (loader,) = Path("/lib").glob("ld-musl-*.so.1")
    shutil.copy(loader, home / "lib" / loader.name)
    shutil.copy("/bin/busybox", home / "bin" / "busybox")
    (home / "bin" / "sh").symlink_to("busybox")
    (home / "dev" / "null").touch()
    shipped = subprocess.run(
        [ROOT / "scripts" / "runtime"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    image = home / "opt" / "paceline-image"
    shutil.copytree(ROOT / shipped.stdout.strip().splitlines()[-1], image)
    (image / "bin").mkdir(exist_ok=True)
    shutil.copy(build / "bin" / "paceline-launcher", image / "bin")
    yield home


def inside(root: Path, environment: dict[str, str], *command: str) -> subprocess.Popen[str]:
    """Starts a command as PID 1 of namespaces of its own, with /proc and /dev/null; its file system
    is `root` and nothing else.
    """
    script = 'mount -t proc proc "$1/proc"; mount --bind /dev/null "$1/dev/null"; exec chroot "$@"'
    return subprocess.Popen(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            script,
            "sh",
            str(root),
            *command,
        ],
        env={**environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def replica(node: int, address: str, **more: str) -> dict[str, str]:
    return {
        "PACELINE_JOB_NAME": "job",
        "PACELINE_JOB_UID": "uid",
        "PACELINE_ROLE": "worker",
        "PACELINE_NODE_RANK": str(node),
        "PACELINE_NODE_COUNT": str(NODES),
        "PACELINE_POD_IP": "127.0.0.1",
        "PACELINE_FRAMEWORK": "Custom",
        "PACELINE_PROCESSES_PER_REPLICA": "2",
        "PACELINE_RENDEZVOUS_ADDRESS": address,
        "PACELINE_RENDEZVOUS_LISTEN": address,
        "PACELINE_MASTER_PORT": "0",
        "PACELINE_TOKEN": "secret",
        "PACELINE_STARTUP_TIMEOUT": "30s",
        "PACELINE_MAX_RESTARTS": "1",
        "PACELINE_GRACE_PERIOD": "5s",
        "PACELINE_RUNTIME_DIR": "/opt/paceline",
        "PACELINE_STATE_DIR": f"/tmp/state-{node}",
        "PACELINE_TERMINATION_LOG": f"/tmp/termination-{node}",
        **more,
    }


def test_the_root_has_no_glibc(root: Path) -> None:
    names = {path.name for path in root.rglob("*")}
    assert not any(name.startswith(("libc.so", "ld-linux")) for name in names), names


def test_the_launcher_starts_and_supervises_where_there_is_only_musl(root: Path) -> None:
    installing = inside(
        root, {}, "/opt/paceline-image/bin/paceline-launcher", "install", "/opt/paceline"
    )
    output, _ = installing.communicate(timeout=60)
    assert installing.returncode == 0, output
    address = free_address()
    launcher = "/opt/paceline/bin/paceline-launcher"
    replicas = [
        inside(root, replica(node, address), launcher, "run", "--", "/bin/train")
        for node in range(NODES)
    ]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in replicas]
    finally:
        for process in replicas:
            process.send_signal(signal.SIGKILL)
    assert [process.returncode for process in replicas] == [0, 0], "".join(outputs)
    lines = "".join(outputs).splitlines()
    for rank in range(2 * NODES):
        of_rank = [
            line.removeprefix(f"[{rank}] ") for line in lines if line.startswith(f"[{rank}] ")
        ]
        # The gang was restarted once, since rank 1 failed; a rank that had not yet spoken then may
        # be silent about attempt 0.
        assert f"rank {rank} of 4 attempt 1 musl 1 glibc 0" in of_rank, lines
        assert of_rank.count("LD_PRELOAD=- LD_LIBRARY_PATH=- LD_AUDIT=-") == len(of_rank) / 3, lines
        assert of_rank.count("runtime refused") == len(of_rank) / 3, lines
    assert '"verdict":"Succeeded"' in (root / "tmp" / "termination-0").read_text()
    assert '"restarts":1' in (root / "tmp" / "termination-0").read_text()


def test_a_shell_of_the_image_is_a_command_like_any_other(root: Path) -> None:
    shutil.copytree(root / "opt" / "paceline-image", root / "opt" / "paceline")
    alone = replica(0, free_address(), PACELINE_NODE_COUNT="1", PACELINE_MAX_RESTARTS="0")
    script = 'echo "$RANK here"; [ "$RANK" = 0 ] || exit 7; exec sleep 60'
    process = inside(
        root, alone, "/opt/paceline/bin/paceline-launcher", "run", "--", "sh", "-c", script
    )
    output, _ = process.communicate(timeout=60)
    assert "[1] 1 here" in output and "exited with code 7" in output, output
    assert '"verdict":"Failed"' in (root / "tmp" / "termination-0").read_text()
