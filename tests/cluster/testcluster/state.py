# SPDX-License-Identifier: Apache-2.0
"""What `up` made, written down before it is made, so that `down` removes exactly that and nothing
else.

One cluster per machine: its addresses and cgroup names are fixed. Paths are absolute everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

RUN = Path("/run/paceline-cluster")
DATA = Path("/var/lib/paceline-cluster")
STATE_FILE = RUN / "state.json"

API_ADDRESS = "10.77.0.1"
HOST_ADDRESS = "10.77.0.254"
API_URL = f"https://{API_ADDRESS}:6443"
SERVICE_RANGE = "10.79.0.0/16"
FIRST_SERVICE_ADDRESS = "10.79.0.1"
DNS_ADDRESS = "10.79.0.10"
POD_RANGE = "10.78.0.0/16"
CONTROL_CGROUP = "paceline-control"
HOST_LINK = "paceline0"


class ClusterError(Exception):
    """Something could not be done; the message says what and what to try."""


@dataclass(frozen=True)
class Node:
    """One node's names and addresses, all derived from its number (from 1)."""

    number: int

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        return f"10.78.{self.number}.0/24"

    @property
    def cgroup(self) -> str:
        return f"paceline-{self.name}"

    @property
    def link(self) -> str:
        """The fabric's end of this node's cable."""
        return f"to-{self.name}"

    @property
    def data(self) -> Path:
        return DATA / self.name

    @property
    def net(self) -> Path:
        return RUN / "ns" / f"{self.name}.net"

    @property
    def mnt(self) -> Path:
        return RUN / "ns" / f"{self.name}.mnt"

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--net={self.net}", f"--mount={self.mnt}", "--", *command]


@dataclass
class State:
    """Everything that exists outside the two directories."""

    nodes: int
    tools: str
    cgroup_form: str
    sysctls: dict[str, str] = field(default_factory=dict)
    # Mount points that the machine did not have.
    made_folders: list[str] = field(default_factory=list)
    profile: str = ""  # of control_plane.PROFILES; "": the usual Kubernetes

    def save(self) -> None:
        draft = STATE_FILE.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.rename(STATE_FILE)

    @staticmethod
    def load() -> State:
        try:
            return State(**json.loads(STATE_FILE.read_text()))
        except FileNotFoundError:
            raise ClusterError(
                "no cluster is up on this machine; start one with `cluster up`"
            ) from None
        except (ValueError, TypeError) as error:
            raise ClusterError(
                f"{STATE_FILE} cannot be read ({error}); `cluster down` removes the cluster"
            ) from None

    @property
    def all_nodes(self) -> list[Node]:
        return [Node(number) for number in range(1, self.nodes + 1)]

    def node(self, name: str) -> Node:
        for node in self.all_nodes:
            if node.name == name:
                return node
        raise ClusterError(
            f"there is no node {name!r}; nodes: {', '.join(n.name for n in self.all_nodes)}"
        )

    def tool(self, name: str) -> str:
        return os.path.join(self.tools, name)


def run(*command: str, data: str | None = None) -> str:
    """Runs a command to its end and returns what it printed; a failure carries what it said."""
    done = subprocess.run(command, input=data, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(
            f"{' '.join(command)}: exit {done.returncode}:"
            f" {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout
