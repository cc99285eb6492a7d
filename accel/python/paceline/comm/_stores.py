# SPDX-License-Identifier: Apache-2.0
"""Places where ranks find each other, for programs whose framework has none: a folder that all see,
or a port of one of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import struct
import tempfile
import threading
import time
import weakref
from datetime import timedelta
from pathlib import Path

MOST = 1 << 20  # bytes of a key or a value
LENGTH = struct.Struct("<I")
SET, GET = b"s", b"g"
FOUND, NOT_YET = b"+", b"-"
STEP = 0.05  # seconds between two looks


class FileStore:
    """A folder that all ranks see: a new one for each run. It is made where it is missing, and left
    where it is.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def set(self, key: str, value: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:
            file.write(value)
        # Whole or not at all, also for who looks meanwhile.
        Path(file.name).replace(self._file(key))

    def get(self, key: str, timeout: timedelta) -> bytes:
        until = time.monotonic() + timeout / timedelta(seconds=1)
        while True:
            with contextlib.suppress(FileNotFoundError):
                return self._file(key).read_bytes()
            if time.monotonic() >= until:
                raise TimeoutError(f"paceline.arrays: nobody has set {key} in {self._folder}")
            time.sleep(STEP)

    def _file(self, key: str) -> Path:
        return self._folder / key.encode().hex()


class TcpStore:
    """`address` is HOST:PORT of the rank that makes it with `serve`; others may be there before it.
    It serves until `close`, or the end of its process. Whoever reaches that port may read and write
    what is in it, as with PyTorch's.
    """

    def __init__(self, address: str, *, serve: bool = False) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 <= int(port) < 65536:
            raise ValueError(f"paceline.arrays: address is '{address}': it must be HOST:PORT")
        self._server = _Server(host.strip("[]"), int(port)) if serve else None
        self._host, self._port = (
            host.strip("[]"),
            (self._server.server_address[1] if self._server else int(port)),
        )

    @property
    def address(self) -> str:
        """With the port that was taken, where it was given as 0."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def set(self, key: str, value: bytes) -> None:
        # As long as a rank may take to begin: the one that serves may be the last.
        self._ask(SET, key, value, time.monotonic() + 300)

    def get(self, key: str, timeout: timedelta) -> bytes:
        until = time.monotonic() + timeout / timedelta(seconds=1)
        while True:
            answer = self._ask(GET, key, b"", until)
            if answer is not None:
                return answer
            if time.monotonic() >= until:
                raise TimeoutError(f"paceline.arrays: nobody has set {key} at {self.address}")
            time.sleep(STEP)

    def close(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _ask(self, what: bytes, key: str, value: bytes, until: float) -> bytes | None:
        while True:
            try:
                with socket.create_connection((self._host, self._port), timeout=10) as peer:
                    peer.sendall(what + _framed(key.encode()) + _framed(value))
                    return _take(peer, MOST) if _exactly(peer, 1) == FOUND else None
            except OSError as error:
                if time.monotonic() >= until:
                    raise TimeoutError(
                        f"paceline.arrays: {self.address} cannot be reached: {error}"
                    ) from error
                time.sleep(STEP)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Request)
        self.values: dict[bytes, bytes] = {}
        _serving.add(self)
        threading.Thread(target=self.serve_forever, name="paceline-store", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Who sends something else, or goes away, is left alone: nothing of it is kept."""


class _Request(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        peer: socket.socket = self.request
        peer.settimeout(10)
        what, key, value = _exactly(peer, 1), _take(peer, MOST), _take(peer, MOST)
        if what == SET:
            self.server.values[key] = value
            peer.sendall(FOUND + _framed(b""))
        elif what == GET:
            found = self.server.values.get(key)
            peer.sendall(NOT_YET if found is None else FOUND + _framed(found))


_serving: weakref.WeakSet[_Server] = weakref.WeakSet()


def _leave_in_child() -> None:
    """A port that a forked child kept would stay taken when its parent has ended."""
    for server in list(_serving):
        server.socket.close()
    _serving.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def _framed(data: bytes) -> bytes:
    if len(data) > MOST:
        raise ValueError(
            f"paceline.arrays: {len(data)} bytes are more than the {MOST} that a store takes"
        )
    return LENGTH.pack(len(data)) + data


def _take(peer: socket.socket, most: int) -> bytes:
    size = LENGTH.unpack(_exactly(peer, LENGTH.size))[0]
    if size > most:
        raise ConnectionError(f"a message of {size} bytes")
    return _exactly(peer, size)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError("closed in the middle of a message")
        data += more
    return bytes(data)
