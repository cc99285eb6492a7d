# SPDX-License-Identifier: Apache-2.0
"""A small virtual machine with an RDMA device.

It has Debian's kernel, an initramfs of busybox and the given programs, and soft RoCE (rdma_rxe) on
one end of a veth pair. QEMU emulates every instruction (TCG), so any machine can run it. Results of
verbs are valid; speeds are meaningless. The kernel's package is downloaded and unpacked into the
cache, never installed.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "paceline"
# The driver loads crc32_generic by name, so it is in no list of dependencies.
MODULES = ["crc32_generic", "veth", "ib_uverbs", "rdma_ucm", "rdma_rxe"]
BOOT_LIMIT_S = 600
INIT = """#!/bin/busybox sh
# By path, because the shell has its own, smaller ip.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "/modules/$module"; done < /modules/order
/bin/ip link set lo up
/bin/ip link add e0 type veth peer name e1
/bin/ip address add 192.0.2.1/24 dev e0
/bin/ip link set e0 up
/bin/ip link set e1 up
/bin/rdma link add rxe0 type rxe netdev e0
ulimit -l unlimited
for command in /commands/*; do
  sh "$command" > /tmp/output 2>&1
  code=$?
  echo "@begin ${command##*/} $code"
  base64 /tmp/output
  echo "@end"
done
poweroff -f
"""


@dataclass(frozen=True)
class Answer:
    code: int
    output: str


def run(*command: str | Path, folder: Path | None = None, text: str | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command[0]} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    )
    return done.stdout


def kernel() -> tuple[Path, str]:
    """The unpacked package of Debian's current kernel with its modules' dependencies, and the
    kernel's version.
    """
    depends = run("apt-cache", "depends", "linux-image-amd64")
    package = re.findall(r"Depends: (linux-image-\S+)", depends)[0]
    version = package.removeprefix("linux-image-")
    home = CACHE / f"rdma-{package}"
    if not home.exists():
        fresh = home.with_suffix(f".{os.getpid()}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        run("apt-get", "download", package, folder=fresh)
        (archive,) = fresh.glob("*.deb")
        run("dpkg-deb", "--extract", archive, fresh)
        archive.unlink()
        run("depmod", "-b", fresh, version)
        fresh.rename(home)
    return home, version


def libraries(program: Path) -> list[Path]:
    """The libraries that the loader opens for a program or library, as ldd lists them."""
    listed = run("ldd", program)
    return [Path(found) for found in re.findall(r"(?:=> )?(/\S+) \(0x", listed)]


class Guest:
    """Collects files and commands; `boot` runs the commands in the order they were added."""

    def __init__(self, folder: Path) -> None:
        self._home, self._version = kernel()
        self._folder = folder
        self._root = folder / "root"
        for name in ("bin", "commands", "modules", "etc/libibverbs.d", "tmp"):
            (self._root / name).mkdir(parents=True)
        shutil.copy("/bin/busybox", self._root / "bin")
        for tool in ("ip", "rdma", "ibv_devinfo", "ibv_rc_pingpong"):
            self.add_program(tool)
        self._add_modules()
        self._add_provider()
        init = self._root / "init"
        init.write_text(INIT)
        init.chmod(0o755)
        self._commands: list[str] = []

    def add_program(self, program: str | Path) -> None:
        """Adds a program by name or path to /bin, with its libraries."""
        found = shutil.which(program)
        assert found, f"{program} is not there"
        shutil.copy(found, self._root / "bin")
        for library in libraries(Path(found)):
            self.add_file(library)

    def add_library(self, library: Path) -> None:
        """Adds a file at its path on this machine, with the libraries that it needs."""
        for file in [library, *libraries(library)]:
            self.add_file(file)

    def add_file(self, file: Path) -> None:
        target = self._root / str(file).lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)

    def add_command(self, name: str, script: str) -> None:
        self._commands.append(name)
        (self._root / "commands" / f"{len(self._commands):02}-{name}").write_text(script + "\n")

    def boot(self) -> dict[str, Answer]:
        """The answers of the commands, by name. Raises with the console's last lines if one is
        missing.
        """
        image = self._folder / "initramfs"
        names = "\n".join(
            str(path.relative_to(self._root)) for path in sorted(self._root.rglob("*"))
        )
        with image.open("wb") as output:
            subprocess.run(
                ["busybox", "cpio", "-o", "-H", "newc"],
                cwd=self._root,
                input=names.encode(),
                stdout=output,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        console = self._run_qemu(image)
        answers = {}
        for name, code, body in re.findall(
            r"@begin \d+-(\S+) (\d+)\r?\n(.*?)@end", console, re.DOTALL
        ):
            answers[name] = Answer(
                int(code), base64.b64decode("".join(body.split())).decode(errors="replace")
            )
        missing = [name for name in self._commands if name not in answers]
        assert not missing, f"no answer of {missing}; the console's end:\n{console[-4000:]}"
        return answers

    def _run_qemu(self, image: Path) -> str:
        command = [
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "2",
            "-cpu",
            "max",
            "-m",
            "1024",
        ]
        command += [
            "-kernel",
            str(self._home / "boot" / f"vmlinuz-{self._version}"),
            "-initrd",
            str(image),
        ]
        command += [
            "-append",
            "console=ttyS0 quiet panic=-1",
            "-nographic",
            "-no-reboot",
            "-net",
            "none",
        ]
        log = self._folder / "console.log"
        with log.open("wb") as output:
            try:
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=BOOT_LIMIT_S,
                )
            except subprocess.TimeoutExpired:
                output.write(f"\nstopped after {BOOT_LIMIT_S} s\n".encode())
        return log.read_text(errors="replace")

    def _add_modules(self) -> None:
        order: list[str] = []
        for module in MODULES:
            for line in run(
                "modprobe", "-d", self._home, "-S", self._version, "--show-depends", module
            ).splitlines():
                kind, _, path = line.partition(" ")
                file = Path(path.strip().split()[0])
                if kind == "insmod" and file.name not in order:
                    order.append(file.name)
                    shutil.copy(file, self._root / "modules")
        (self._root / "modules" / "order").write_text("\n".join(order) + "\n")

    def _add_provider(self) -> None:
        """Adds the file by which libibverbs finds the device's user-space driver."""
        shutil.copy("/etc/libibverbs.d/rxe.driver", self._root / "etc" / "libibverbs.d")
        (provider,) = Path("/usr/lib").glob("*/libibverbs/librxe-rdmav*.so")
        (verbs,) = Path("/usr/lib").glob("*/libibverbs.so.1")
        self.add_library(provider)
        self.add_library(verbs)
