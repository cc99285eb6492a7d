# SPDX-License-Identifier: Apache-2.0
"""Ports for what a test starts."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

# Above what the launcher draws from (20000 to 28999, common/net/ports.cpp). Below Paceline's ports
# in pods (29400, 29401, and 29500 to 29599), Kubernetes' node ports (from 30000), and what Linux
# gives to outgoing connections (from 32768). A port is told again after all the others: minutes later.
FIRST, END = 29000, 29400


def free_port() -> int:
    """A TCP port that nobody listens on, and that no other test is told and no outgoing connection
    takes until it is used.

    A program listens only seconds after it was told its port. So ports are numbered through, by one
    file for all tests of this user, rather than asked of the system, which gives the same port away
    to the next connection.
    """
    counter = Path(tempfile.gettempdir()) / f"paceline-test-ports-{os.getuid()}"
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        last = int(file.read() or FIRST - 1)
        for offset in range(1, END - FIRST + 1):
            port = FIRST + (last - FIRST + offset) % (END - FIRST)
            if is_free(port):
                file.truncate(0)
                file.write(str(port))
                return port
    raise RuntimeError(f"no free TCP port in {FIRST} to {END - 1}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: what is left of a connection that was closed is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
