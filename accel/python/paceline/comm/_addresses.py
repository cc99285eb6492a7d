# SPDX-License-Identifier: Apache-2.0
"""The addresses at which peers reach this process, from the environment and the network devices."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

from paceline._core import contract
from paceline._core.environment import told

SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
MOST_ADDRESSES = 16  # in a peer info


def own_address() -> str:
    """Where peers reach this rank: the devices that PACELINE_SOCKET_IFNAME names, else those that
    gloo or NCCL are told to use, whichever are more, else the pod's address, else the library's
    choice. Several addresses are separated by commas.
    """
    ours = told(contract.SOCKET_IFNAME)
    if ours:
        found = addresses_of(ours)
        if not found:
            there = ", ".join(name for name, _, _ in _devices()) or "none"
            raise ValueError(
                f"PACELINE_SOCKET_IFNAME: '{ours}' names no network device that is up and has an"
                f" IPv4 address; there are: {there}"
            )
        return ",".join(found)
    gloo, nccl = os.environ.get("GLOO_SOCKET_IFNAME", ""), os.environ.get("NCCL_SOCKET_IFNAME", "")
    found = []
    with contextlib.suppress(OSError):  # a sandbox may not list its devices
        # The launcher sets both to the pod's own device, so a program's own list may be either.
        found = max(addresses_of("=" + gloo), addresses_of(nccl), key=len)
    # "^lo", as many set it for NCCL, may name more than a rank has use for.
    return ",".join(found[:MOST_ADDRESSES]) or told(contract.POD_IP)


def why_no_address() -> str:
    """Returns an empty text if there is an address, else why there is none."""
    try:
        own_address()
    except ValueError as error:
        return str(error)
    except OSError as error:
        return f"PACELINE_SOCKET_IFNAME: the network devices cannot be listed here: {error}"
    return ""


def addresses_of(names: str) -> list[str]:
    """Of the devices that NCCL_SOCKET_IFNAME would mean: "eth" all that begin so, "=eth0,eth1"
    these, "^lo,docker" all but these and loopback. In the order of the words.
    """
    but, rest = names.startswith("^"), names[names.startswith("^") :]
    whole, words = rest.startswith("="), [word for word in rest.lstrip("=").split(",") if word]

    def named(device: str, word: str) -> bool:
        return device == word if whole else device.startswith(word)

    devices = _devices() if words else []
    if but:
        return [
            address
            for device, address, loopback in devices
            if not loopback and not any(named(device, word) for word in words)
        ]
    return list(
        dict.fromkeys(
            address for word in words for device, address, _ in devices if named(device, word)
        )
    )


def _devices() -> list[tuple[str, str, bool]]:
    """Of this host: name, IPv4 address, and whether it is loopback, of those that are up and have
    one.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, device in socket.if_nameindex():
            request = struct.pack("256s", device.encode()[:15])
            with contextlib.suppress(OSError):  # gone meanwhile, or without an address
                flags = struct.unpack_from("H", fcntl.ioctl(probe, SIOCGIFFLAGS, request), 16)[0]
                address = socket.inet_ntoa(fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24])
                if flags & IFF_UP:
                    found.append((device, address, bool(flags & IFF_LOOPBACK)))
    return found
