# SPDX-License-Identifier: Apache-2.0
"""Checks that several ranks run together, each in a process of its own, all on one device. NCCL
takes a second rank on a device where each has an NCCL_HOSTID of its own, and goes over sockets of
loopback then: that shows what is right and says nothing of NCCL's speed.
"""

from __future__ import annotations

import datetime
import faulthandler
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from checks import Check


class Ranks:
    """The ranks of a program, which is run again for each: with the type of its device and the
    names of the checks. Each check has `limit_s` or its own, in which all ranks end; PyTorch's
    collectives have half of it, so that a rank that waits can still say for whom. One that has not
    ended shortly before says where it is.
    """

    def __init__(self, program: str, ranks: int, limit_s: int) -> None:
        self.checks: list[Check] = []
        self._program, self._ranks, self._limit_s = program, ranks, limit_s
        self._by_name: dict[str, Callable[[int], None]] = {}
        self.on_cpu = sys.argv[1:2] == ["cpu"]
        self.device = torch.device("cpu" if self.on_cpu else "cuda:0")

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def check(
        self, function: Callable[[int], None], killed: tuple[int, ...] = (), limit_s: int = 0
    ) -> Callable[[int], None]:
        """A check that all ranks run, each with its rank, in another limit than the program's if it
        has its own. Those in `killed` end by SIGKILL, all others with 0.
        """

        def run_it() -> None:
            self.run([function.__name__], killed, limit_s)

        run_it.__name__ = function.__name__
        self._by_name[function.__name__] = function
        self.checks.append(run_it)
        return function

    def run(self, names: list[str], killed: tuple[int, ...] = (), limit_s: int = 0) -> None:
        limit_s = limit_s or self._limit_s * len(names)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(self._ranks),
        }
        environment |= {
            "NCCL_SOCKET_IFNAME": "lo",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_IB_DISABLE": "1",
        }
        environment["RANKS_LIMIT_S"] = str(limit_s)
        environment.setdefault(
            "NCCL_DEBUG", "WARN"
        )  # what it refuses and why: shown where a rank fails
        ranks = [
            subprocess.Popen(
                [sys.executable, self._program, self.device.type, *names],
                env={**environment, "RANK": str(rank), "NCCL_HOSTID": f"host-of-{rank}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(self._ranks)
        ]
        said = []
        end = time.monotonic() + limit_s
        for number, rank in enumerate(ranks):
            try:
                said.append(rank.communicate(timeout=max(0.1, end - time.monotonic()))[0])
            except subprocess.TimeoutExpired:
                for late in ranks[number:]:
                    late.kill()
                said.append(rank.communicate()[0] + f"\nkilled after {limit_s} s")
        codes = [rank.returncode for rank in ranks]
        wanted = [-9 if rank in killed else 0 for rank in range(self._ranks)]
        assert codes == wanted, f"codes {codes}\n" + "\n".join(said)

    def take_part(self, names: list[str], backend: str) -> None:
        """As one of the ranks."""
        faulthandler.dump_traceback_later(0.9 * float(os.environ["RANKS_LIMIT_S"]))
        if self.on_cpu:
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(self.device)
        of_a_check = float(os.environ["RANKS_LIMIT_S"]) / len(names)
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=of_a_check / 2))
        for name in names:
            self._by_name[name](dist.get_rank())
        dist.destroy_process_group()
