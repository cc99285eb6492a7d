# SPDX-License-Identifier: Apache-2.0
"""What the tests stand on: the two-node cluster of tests/cluster, and the operator as a process of
this machine.

It runs as a process where a test has to stop, kill or arm it; test_install.py installs it by the
chart.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build" / "release"))
CLUSTER = ROOT / "tests" / "cluster" / "cluster"


def run(command: list[str], timeout: float = 300) -> str:
    """Runs a command to its end; a failure shows what it said."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    shown = " ".join(Path(command[0]).name if i == 0 else word for i, word in enumerate(command))
    output = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    assert done.returncode == 0, f"{shown} ended with {done.returncode}:\n{output}"
    return done.stdout


class Cluster:
    """The cluster command of tests/cluster."""

    def __init__(self) -> None:
        self._beside: subprocess.Popen[str] | None = None

    def call(self, *arguments: str, timeout: float = 900) -> str:  # more than its own waits
        return run([str(CLUSTER), *arguments], timeout)

    def begin(self, *arguments: str) -> None:
        """Starts one call that runs beside the tests."""
        output = subprocess.PIPE
        self._beside = subprocess.Popen(
            [str(CLUSTER), *arguments], cwd=ROOT, stdout=output, stderr=output, text=True
        )

    def finish(self) -> None:
        """Waits for the call that runs beside the tests."""
        if self._beside is None:
            return
        _, problem = self._beside.communicate(timeout=300)
        code, self._beside = self._beside.returncode, None
        assert code == 0, f"the call beside the tests ended with {code}: {problem[-2000:]}"

    def kubeconfig(self) -> Path:
        return Path(self.call("kubeconfig").strip().splitlines()[-1])

    def on_node(self, node: str, *command: str) -> str:
        return self.call("exec-node", node, *command)


@contextmanager
def own_cluster(images: list[str], keep: bool, profile: str = "") -> Iterator[Cluster]:
    """A cluster of two nodes that have these images. `keep`: one that is up already, which stays."""
    control = Cluster()
    run([str(ROOT / "scripts" / "images"), "pause", *images], timeout=900)
    if not keep:
        control.call("up", "--owner", str(os.getpid()), "--profile", profile)
    try:
        archives = [str(ROOT / "build" / "images" / f"{name}.tar") for name in images]
        control.call("load-image", *archives)
        yield control
    finally:
        if not keep:
            control.call("down")


class Operator:
    """paceline-operator as a process. Its log is kept in a file whose end a failing test shows."""

    def __init__(self, kubeconfig: Path, folder: Path, flags: list[str]) -> None:
        self._kubeconfig = kubeconfig
        self.log = folder / "operator.log"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 18080

    def start(self, env: dict[str, str] | None = None) -> None:
        assert self._process is None or self._process.poll() is not None, (
            "the operator already runs"
        )
        binary = BUILD / "bin" / "paceline-operator"
        assert os.access(binary, os.X_OK), f"{binary} is missing: scripts/build release"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                # It ends with a test run that is killed, or it would keep its port from the next.
                ["setpriv", "--pdeathsig", "KILL", str(binary)]
                + ["--kubeconfig", str(self._kubeconfig), *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_ready(self, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not self._answers("/readyz"):
            assert self.running(), f"the operator ended with {self.exit_code()}:\n{self.tail()}"
            assert time.monotonic() < deadline, (
                f"the operator is not ready after {timeout:g} s:\n{self.tail()}"
            )
            time.sleep(0.1)

    def _answers(self, path: str) -> bool:
        try:
            return self.fetch(path) is not None
        except (OSError, urllib.error.URLError):
            return False

    def fetch(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return answer.read().decode()

    def stop(self, how: int = signal.SIGTERM, timeout: float = 60) -> int:
        """Ends it and answers the exit code; one that does not end in time is killed and fails the
        test.
        """
        process = self._process  # another thread may start a new one meanwhile
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(
                    f"the operator did not end within {timeout:g} s:\n{self.tail()}"
                ) from None
        return process.returncode

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def peak_memory(self) -> int:
        """The most bytes of RAM that it has had."""
        assert self._process
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(peak) * 1024

    def tail(self, lines: int = 15) -> str:
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
            if self.log.exists()
            else ""
        )
