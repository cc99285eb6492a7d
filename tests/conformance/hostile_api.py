# SPDX-License-Identifier: Apache-2.0
"""An API server that misbehaves: a proxy in front of a real one, for programs that must cope.

    hostile_api.py --kubeconfig FILE --seed N --write-kubeconfig FILE

It delays requests, and refuses some with 409, 410, 429 or 500. It loses the answers of writes that
were applied. It cuts and stalls watches, repeats their events, and sends a wrong Date. Whether and
how a request suffers depends on the seed, the request, and how often it came before. So two runs
with one seed differ only as far as their requests differ.

The first line is the seed and the address. At SIGTERM the last line is JSON: how often each fault
was made. Requests are plain HTTP on the loopback interface.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import collections
import json
import random
import signal
import ssl
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from time import time
from urllib.parse import parse_qs, urlsplit

WRITES = ("POST", "PUT", "PATCH", "DELETE")
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
LONGEST_DELAY_SECONDS = 0.5
STALL_SECONDS = 3.0
LARGEST_SKEW_SECONDS = 6 * 3600
# Shares of the requests that suffer from each fault.
READ_FAULTS = {"delay": 0.15, "429": 0.04, "500": 0.04, "410": 0.03}
WRITE_FAULTS = {"delay": 0.15, "409": 0.04, "429": 0.04, "500": 0.04, "lost": 0.08}
WATCH_FAULTS = {"delay": 0.1, "429": 0.05, "500": 0.05, "410": 0.1, "cut": 0.25, "stall": 0.25}
REPEATED_EVENTS = 0.2


@dataclass
class Request:
    method: str
    target: str
    headers: list[str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return "watch" in parse_qs(urlsplit(self.target).query)

    def encoded(self) -> bytes:
        kept = [
            line
            for line in self.headers
            if line.partition(":")[0].lower() not in ("connection", "host", "content-length")
        ]
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: api", "Connection: close", *kept]
        if self.body or self.method in WRITES:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode() + self.body


async def read_head(reader: asyncio.StreamReader) -> list[str]:
    head = await reader.readuntil(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n")[:-2]


def header(lines: list[str], name: str) -> str:
    found = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in found if key.lower() == name), "")


async def read_chunks(reader: asyncio.StreamReader) -> collections.abc.AsyncIterator[bytes]:
    """The data of a chunked body."""
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()


class HostileApi:
    """The proxy. One thread; all state is that of the event loop's thread."""

    def __init__(self, upstream: tuple[str, int], tls: ssl.SSLContext, seed: int) -> None:
        self._upstream = upstream
        self._tls = tls
        self._seed = seed
        self._seen: collections.Counter[str] = collections.Counter()
        self.made: collections.Counter[str] = collections.Counter()
        skew = random.Random(seed).uniform(-LARGEST_SKEW_SECONDS, LARGEST_SKEW_SECONDS)
        self._skew_seconds = skew

    def _luck_of(self, request: Request) -> random.Random:
        what = f"{request.method} {urlsplit(request.target).path} {request.is_watch}"
        self._seen[what] += 1
        return random.Random(f"{self._seed} {what} {self._seen[what]}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has gone, or the program ends
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; says whether the connection lives on."""
        first, *headers = await read_head(reader)
        method, target, _ = first.split(" ")
        body = await reader.readexactly(int(header(headers, "content-length") or 0))
        request = Request(method, target, headers, body)
        luck = self._luck_of(request)
        faults = WRITE_FAULTS if method in WRITES else READ_FAULTS
        fault = self._pick(luck, WATCH_FAULTS if request.is_watch else faults)
        self.made["requests"] += 1
        if fault:
            self.made[fault] += 1
            print(f"{fault}: {method} {urlsplit(target).path}", file=sys.stderr, flush=True)
        if fault == "delay":
            await asyncio.sleep(luck.uniform(0, LONGEST_DELAY_SECONDS))
        if fault.isdigit():
            return await self._refuse(writer, int(fault))
        host, port = self._upstream
        far_reader, far_writer = await asyncio.open_connection(host, port, ssl=self._tls)
        try:
            far_writer.write(request.encoded())
            status, *answer = await read_head(far_reader)
            chunked = header(answer, "transfer-encoding") == "chunked"
            if request.is_watch and chunked:
                await self._watch(far_reader, writer, status, answer, fault, luck)
                return False
            if chunked:
                whole = b"".join([chunk async for chunk in read_chunks(far_reader)])
            else:
                whole = await far_reader.readexactly(int(header(answer, "content-length") or 0))
            if fault == "lost":
                return False
            await self._send(writer, status, answer, whole)
            return True
        finally:
            far_writer.transport.abort()

    @staticmethod
    def _pick(luck: random.Random, faults: dict[str, float]) -> str:
        roll = luck.random()
        for fault, share in faults.items():
            roll -= share
            if roll < 0:
                return fault
        return ""

    async def _send(
        self, writer: asyncio.StreamWriter, status: str, headers: list[str], body: bytes | None
    ) -> None:
        """Sends a whole answer, or without a body the head of a stream."""
        dropped = ("date", "content-length", "transfer-encoding", "connection")
        lines = [line for line in headers if line.partition(":")[0].lower() not in dropped]
        lines.append(f"Date: {formatdate(time() + self._skew_seconds, usegmt=True)}")
        chunked = "Transfer-Encoding: chunked"
        lines.append(chunked if body is None else f"Content-Length: {len(body)}")
        writer.write("\r\n".join([status, *lines, "", ""]).encode("latin-1") + (body or b""))
        await writer.drain()

    async def _refuse(self, writer: asyncio.StreamWriter, code: int) -> bool:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": f"hostile: {REASONS[code]}",
            "reason": REASONS[code],
            "code": code,
        }
        headers = ["Content-Type: application/json", *(["Retry-After: 1"] if code == 429 else [])]
        line = f"HTTP/1.1 {code} {REASONS[code]}"
        await self._send(writer, line, headers, json.dumps(status).encode())
        return True

    async def _watch(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        status: str,
        headers: list[str],
        fault: str,
        luck: random.Random,
    ) -> None:
        """Passes the events of a watch on, until its fault comes due."""
        await self._send(writer, status, headers, None)
        left = luck.randint(1, 40) if fault in ("cut", "stall") else -1
        pending = b""
        async for chunk in read_chunks(reader):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                data = line + b"\n"
                if left == 0 and fault == "stall":
                    await asyncio.sleep(STALL_SECONDS)
                if left == 0:
                    # A part of an event, and then nothing more.
                    data = data[: len(data) // 2]
                elif luck.random() < REPEATED_EVENTS:
                    self.made["repeated"] += 1
                    data += data
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()
                if left == 0:
                    return
                left -= 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def upstream_of(kubeconfig: Path) -> tuple[tuple[str, int], ssl.SSLContext]:
    """Address and credentials, as kubectl understands the file."""
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "config", "view", "--raw", "--flatten"]
    shown = subprocess.run(
        [*command, "--minify", "-o", "json"], capture_output=True, text=True, check=True
    )
    view = json.loads(shown.stdout)
    cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile(prefix="paceline-hostile-", suffix=".pem") as file:
        for part in ("client-certificate-data", "client-key-data"):
            file.write(base64.b64decode(user[part]) + b"\n")
        file.flush()
        tls.load_cert_chain(file.name)
    address = urlsplit(cluster["server"])
    return (address.hostname or "", address.port or 443), tls


async def run(arguments: argparse.Namespace) -> None:
    upstream, tls = upstream_of(arguments.kubeconfig)
    proxy = HostileApi(upstream, tls, arguments.seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hostile",
        "clusters": [{"name": "hostile", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "anyone", "user": {}}],
        "contexts": [{"name": "hostile", "context": {"cluster": "hostile", "user": "anyone"}}],
    }
    arguments.write_kubeconfig.write_text(json.dumps(config))
    print(f"seed {arguments.seed}, http://127.0.0.1:{port}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    print(json.dumps({"seed": arguments.seed, **proxy.made}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of the real API server")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--write-kubeconfig", type=Path, required=True, help="for the clients")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
