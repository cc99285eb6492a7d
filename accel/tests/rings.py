# SPDX-License-Identifier: Apache-2.0
"""A receiver of rings for the tests: listens on a telemetry socket, takes the offers, reads the
records. It knows the format of paceline/step_record.h by itself, so that a change of layout on one
side is noticed.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

PHASES = [
    "data_wait",
    "h2d",
    "forward",
    "backward",
    "comm_exposed",
    "optimizer",
    "checkpoint",
    "evaluation",
    "recompute",
    "pipeline_bubble",
    "compute_undivided",
    "memcpy_other",
    "idle_host",
    "idle_gap",
    "other",
    "unattributed",
]
FINAL = 1 << 7
HEADER, RECORD = 4096, 512
F_GET_SEALS = 1034
STEP, AMENDMENT = 1, 3
SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW


@dataclass
class Record:
    seq: int
    kind: int
    boundary: int
    optimizer_mask: int
    step: int
    user_step: int
    start_ns: int
    wall_ns: int
    flags: int
    host: dict[str, float]
    sources: dict[str, int]
    samples: int | None
    tokens: int | None
    micro_batches: int
    optimizers_stepped: int
    rss_mib: int
    overhead_ns: int
    lost_events: int
    comm_exposed_ns: int | None
    # On the device's clock, of amendments: phases that were measured.
    device: dict[str, float]
    device_window_ns: int | None

    @property
    def wall(self) -> float:
        return self.wall_ns / 1e9

    @property
    def final(self) -> bool:
        return bool(self.flags & FINAL)


def parse(raw: bytes) -> Record:
    seq, version, size, kind, boundary, mask, step, user_step, start, wall, _, _, flags = (
        struct.unpack_from("<QHHBBHQqQQIIQ", raw, 0)
    )
    assert (version, size) == (1, RECORD)
    host = struct.unpack_from("<16Q", raw, 64)
    valid = struct.unpack_from("<Q", raw, 448)[0]
    micro, stepped = struct.unpack_from("<HH", raw, 416)
    assert raw[488:512] == bytes(24)
    assert sum(host) == wall, "the phases partition the wall time exactly"
    return Record(
        seq=seq,
        kind=kind,
        boundary=boundary,
        optimizer_mask=mask,
        step=step,
        user_step=user_step,
        start_ns=start,
        wall_ns=wall,
        flags=flags,
        host={name: value / 1e9 for name, value in zip(PHASES, host)},
        sources={name: raw[456 + i] & 15 for i, name in enumerate(PHASES)},
        samples=struct.unpack_from("<Q", raw, 384)[0] if valid & (1 << 12) else None,
        tokens=struct.unpack_from("<Q", raw, 392)[0] if valid & (1 << 13) else None,
        micro_batches=micro,
        optimizers_stepped=stepped,
        rss_mib=struct.unpack_from("<I", raw, 444)[0],
        overhead_ns=struct.unpack_from("<I", raw, 472)[0],
        lost_events=struct.unpack_from("<I", raw, 476)[0],
        device={
            name: struct.unpack_from("<Q", raw, 192 + 8 * i)[0] / 1e9
            for i, name in enumerate(PHASES)
            if raw[456 + i] >> 4
        },
        device_window_ns=struct.unpack_from("<Q", raw, 320)[0] if valid & (1 << 3) else None,
        comm_exposed_ns=struct.unpack_from("<Q", raw, 336)[0] if valid & (1 << 5) else None,
    )


@dataclass
class Ring:
    rank: int
    pid: int
    epoch: int
    fd: int
    records: list[Record] = field(default_factory=list)
    gaps: int = 0
    cursor: int = 0

    def __post_init__(self) -> None:
        import fcntl

        assert fcntl.fcntl(self.fd, F_GET_SEALS) & SEALS == SEALS, (
            "an unsealed ring could be truncated under its reader"
        )
        self.memory = mmap.mmap(self.fd, os.fstat(self.fd).st_size, prot=mmap.PROT_READ)
        magic, major, _, header, record, self.capacity = struct.unpack_from(
            "<IHHIII", self.memory, 0
        )
        assert (magic, major, header, record) == (0x31524C50, 1, HEADER, RECORD)

    def poll(self) -> None:
        end = struct.unpack_from("<Q", self.memory, 1024)[0]
        if end - self.cursor > self.capacity:
            self.gaps += end - self.capacity - self.cursor
            self.cursor = end - self.capacity
        for number in range(self.cursor, end):
            at = HEADER + number % self.capacity * RECORD
            raw = self.memory[at : at + RECORD]
            if (
                struct.unpack_from("<Q", raw)[0]
                == number + 1
                == struct.unpack_from("<Q", self.memory, at)[0]
            ):
                self.records.append(parse(raw))
            else:
                self.gaps += 1
        self.cursor = end

    @property
    def heartbeat_ns(self) -> int:
        return int(struct.unpack_from("<Q", self.memory, 1088)[0])

    @property
    def device_kind(self) -> int:
        return int(struct.unpack_from("<I", self.memory, 168)[0])

    @property
    def device_number(self) -> int:
        return int(struct.unpack_from("<I", self.memory, 232)[0])

    @property
    def pci_address(self) -> str:
        return bytes(self.memory[208:224]).split(b"\0")[0].decode()

    @property
    def capabilities(self) -> int:
        return int(struct.unpack_from("<Q", self.memory, 224)[0])

    @property
    def live_phase(self) -> str:
        return PHASES[struct.unpack_from("<I", self.memory, 1156)[0]]

    @property
    def steps(self) -> list[Record]:
        return [record for record in self.records if record.kind == STEP and not record.final]

    @property
    def amendments(self) -> list[Record]:
        return [record for record in self.records if record.kind == AMENDMENT]

    def total(self, *phases: str, steps_only: bool = False) -> float:
        return sum(
            record.host[phase]
            for record in (self.steps if steps_only else self.records)
            for phase in phases or PHASES
        )


class Receiver:
    """`with Receiver() as receiver`: receiver.path goes into PACELINE_TELEMETRY_SOCKET; rings are
    in receiver.rings at the end.
    """

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="paceline-")
        self.path = str(Path(self.folder.name) / "telemetry")
        self.rings: list[Ring] = []
        self._connections: list[socket.socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Receiver:
        self.listen()
        self._thread.start()
        return self

    def listen(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(self.path)
        self._socket.listen(64)
        self._socket.settimeout(0.02)

    def hang_up(self) -> None:
        """Closes every connection, as a restarted collector does."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.poll()
        self._socket.close()
        self.hang_up()
        self.folder.cleanup()

    def poll(self) -> None:
        for ring in self.rings:
            ring.poll()

    def _run(self) -> None:
        while True:
            ended = self._stop.is_set()  # who has connected before that is accepted
            try:
                connection, _ = self._socket.accept()
                message, descriptors, _, _ = socket.recv_fds(connection, 128, 1)
                magic, version, size, rank, _, pid, epoch = struct.unpack_from("<IHHiiII", message)
                assert (magic, version, size, len(message)) == (0x314F4C50, 1, 64, 64)
                self._connections.append(connection)  # first: who sees the ring may hang up
                self.rings.append(Ring(rank, pid, epoch, descriptors[0]))
            except socket.timeout:
                if ended:
                    return
            self.poll()
            time.sleep(0.01)

    def only(self) -> Ring:
        assert len(self.rings) == 1, f"{len(self.rings)} rings, expected one"
        return self.rings[0]

    def of_rank(self, rank: int) -> Ring:
        found = [ring for ring in self.rings if ring.rank == rank]
        assert len(found) == 1, f"{len(found)} rings of rank {rank}, expected one"
        return found[0]


def environment(runtime: Path, socket_path: str) -> dict[str, str]:
    """What the launcher adds for a rank."""
    paths = [
        str(runtime / "python"),
        str(runtime / "python" / "site"),
        os.environ.get("PYTHONPATH", ""),
    ]
    return {
        **os.environ,
        "PYTHONPATH": ":".join(path for path in paths if path),
        "PACELINE_TELEMETRY_SOCKET": socket_path,
        "OMP_NUM_THREADS": "1",
    }
