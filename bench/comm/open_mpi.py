# SPDX-License-Identifier: Apache-2.0
"""Open MPI as a contender. Its launcher starts the ranks in the namespaces, so that its all-reduces
and ours run in turn in the same processes.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

AGENT = Path(__file__).with_name("host-agent")
# Name the transports: by itself it chooses others than TCP between hosts and shared memory inside
# one, or finds none in a namespace.
SETTINGS = {
    "pml": "ob1",
    "btl": "tcp,vader,self",
    "btl_vader_single_copy_mechanism": "none",
    "mpi_yield_when_idle": "1",  # there are more ranks than processors
}


def why_not() -> str:
    """Returns an empty text if Open MPI is installed, else what is missing."""
    missing = [
        package
        for package, there in (
            ("openmpi-bin", shutil.which("mpirun.openmpi")),
            ("python3-mpi4py", importlib.util.find_spec("mpi4py")),
        )
        if there is None
    ]
    if not missing:
        return ""
    return f"not installed: apt-get install --no-install-recommends {' '.join(missing)}"


def launched(
    hosts: list[str], addresses: list[str], devices: list[str], ranks: int, command: list[str]
) -> list[str]:
    """Runs `command` as all ranks; each finds its number in OMPI_COMM_WORLD_RANK."""
    settings = {
        **SETTINGS,
        "plm_rsh_agent": f"{AGENT} {hosts[0].rpartition('-')[0]}",
        "btl_tcp_if_include": ",".join(devices),
        "oob_tcp_if_include": devices[0],
    }
    begin = [
        "ip",
        "netns",
        "exec",
        hosts[0],
        "unshare",
        "--uts",
        "bash",
        "-c",
        'hostname "$0" && exec "$@"',
        hosts[0],
    ]
    where = ",".join(f"{address}:{ranks}" for address in addresses)
    start = [
        "mpirun.openmpi",
        "--allow-run-as-root",
        "--oversubscribe",
        "--map-by",
        "slot",
        "--bind-to",
        "none",
    ]
    words = [word for name, value in settings.items() for word in ("--mca", name, value)]
    return [*begin, *start, "-host", where, "-np", str(len(hosts) * ranks), *words, *command]
