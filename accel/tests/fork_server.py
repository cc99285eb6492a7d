# SPDX-License-Identifier: Apache-2.0
"""Runs programs as `python script` does, by forks of a process that has imported PyTorch already:
the import is most of what a small program costs. What depends on how the runtime gets in is tested
with processes of its own (inject/test_injection.py).

One datagram asks for a program ({"script", "folder", "environment"} and the descriptor that gets
its output), one answers with its process ({"started": pid}), and one tells its end ({"ended": pid,
"code": as Popen.returncode}).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST = 1 << 17


class ForkServer:
    """The caller's side. Not for several threads at once."""

    def __init__(self, imports: Sequence[str] = ()) -> None:
        """`imports`: what else the programs import, and need not each."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # One thread of computing, as every program here: read once, when the libraries are loaded.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(theirs.fileno()), *imports]
        # Not a terminal: a program's output is buffered as that of any rank.
        self._process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL
        )
        theirs.close()
        self._codes: dict[int, int] = {}

    def start(self, script: Path, folder: Path, environment: dict[str, str], output: int) -> Forked:
        """The process of the program, which writes to the descriptor `output`."""
        request = {"script": str(script), "folder": str(folder), "environment": environment}
        socket.send_fds(self._channel, [json.dumps(request).encode()], [output])
        while True:
            answer = self._answer(None)
            if "started" in answer:
                # The kernel gives numbers of ended processes out again: what the last one ended
                # with is not this one's.
                self._codes.pop(answer["started"], None)
                return Forked(self, int(answer["started"]))

    def code(self, pid: int, timeout: float) -> int:
        until = time.monotonic() + timeout
        while pid not in self._codes:
            self._answer(max(until - time.monotonic(), 0.001))
        return self._codes[pid]

    def close(self) -> None:
        self._channel.close()
        self._process.wait()

    def _answer(self, timeout: float | None) -> dict[str, Any]:
        self._channel.settimeout(timeout)
        message = self._channel.recv(LARGEST)
        if not message:
            raise RuntimeError(f"the fork server ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(message)
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer


@dataclass
class Forked:
    """A program; to its caller what subprocess.Popen is."""

    server: ForkServer
    pid: int

    def wait(self, timeout: float) -> int:
        try:
            return self.server.code(self.pid, timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(["fork server", str(self.pid)], timeout) from None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Answers requests until the caller closes: None. In the process of a program: its request, to
    be run by the caller.
    """
    choice = selectors.DefaultSelector()
    choice.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in choice.select():
            if key.fileobj is not channel:
                choice.unregister(key.fileobj)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                channel.send(json.dumps({"ended": key.data, "code": code}).encode())
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, LARGEST, 1)
            if not message:
                return None
            pid = os.fork()
            if pid == 0:
                choice.close()
                channel.close()
                os.dup2(descriptors[0], 1)
                os.dup2(descriptors[0], 2)
                os.close(descriptors[0])
                request: dict[str, Any] = json.loads(message)
                return request
            os.close(descriptors[0])
            channel.send(json.dumps({"started": pid}).encode())
            choice.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def run(request: dict[str, Any]) -> None:
    """Becomes the program; returns at its end, so that the interpreter ends as that of any program."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    script = request["script"]
    sys.argv = [script]
    sys.path[:1] = [str(Path(script).parent), *os.environ["PYTHONPATH"].split(":")]
    # What PyTorch's entry point, or sitecustomize, would have done.
    from paceline._inject import pytorch

    pytorch.on_torch()
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        exec(compile(Path(script).read_text(), script, "exec"), module.__dict__)  # noqa: S102
    except Exception as error:
        traceback.print_exception(
            error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        )
        sys.exit(1)


def main() -> None:
    import torch

    if int(torch.__version__.split(".")[0]) >= 2:
        import torch._dynamo  # the first optimizer imports it
    for name in sys.argv[2:]:
        importlib.import_module(name)
    # What is here now is no program's garbage: no fork has to walk, and so copy, its pages.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        request = serve(channel)
    if request is not None:
        run(request)


if __name__ == "__main__":
    main()
