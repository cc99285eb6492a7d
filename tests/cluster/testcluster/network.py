# SPDX-License-Identifier: Apache-2.0
"""The wires: a fabric namespace with a bridge, one cable to each node, one to the machine itself.

machine ── paceline0 ──┐            ┌── node-1 eth0 ── cni0 ── pods 10.78.1.0/24
                       ├─ bridge ───┤
control plane (10.77.0.1, in the fabric's namespace)  └── node-2 eth0 ── cni0 ── pods 10.78.2.0/24
"""

from __future__ import annotations

from pathlib import Path

from .state import API_ADDRESS, HOST_ADDRESS, HOST_LINK, RUN, SERVICE_RANGE, Node, run

FABRIC = RUN / "ns" / "fabric.net"


def in_fabric(*command: str) -> list[str]:
    return ["nsenter", f"--net={FABRIC}", "--", *command]


def _pin(net: Path, mnt: Path | None = None) -> None:
    # Pinned by files of our own: `ip netns add` would leave a shared mount on /run/netns behind.
    net.touch()
    command = ["unshare", f"--net={net}"]
    if mnt is not None:
        mnt.touch()
        command.append(f"--mount={mnt}")
    run(*command, "true")


def create_fabric() -> None:
    folder = RUN / "ns"
    folder.mkdir()
    run("mount", "--bind", str(folder), str(folder))
    run("mount", "--make-private", str(folder))
    _pin(FABRIC)
    script = f"""
        ip link set lo up
        ip link add br0 type bridge
        ip address add {API_ADDRESS}/24 dev br0
        ip link set br0 up
        ip link add to-machine type veth peer name {HOST_LINK}
        ip link set to-machine master br0 up
        ip link set {HOST_LINK} netns 1"""
    run(*in_fabric("sh", "-ec", script))
    run("ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", HOST_LINK)
    run("ip", "link", "set", HOST_LINK, "up")


def create_node(node: Node, others: list[Node]) -> None:
    _pin(node.net, node.mnt)
    cable = f"""
        ip link add {node.link} type veth peer name eth0 netns {node.net}
        ip link set {node.link} master br0 up
        ip route add {node.pod_range} via {node.address}"""
    run(*in_fabric("sh", "-ec", cable))
    routes = "\n".join(
        f"ip route add {other.pod_range} via {other.address}" for other in others if other != node
    )
    script = f"""
        ip link set lo up
        ip address add {node.address}/24 dev eth0
        ip link set eth0 up
        ip route add default via {API_ADDRESS}
        {routes}
        echo 1 >/proc/sys/net/ipv4/ip_forward
        filter=/proc/sys/net/bridge/bridge-nf-call-iptables
        if [ -e $filter ]; then echo 1 >$filter; fi"""
    run("nsenter", f"--net={node.net}", "--", "sh", "-ec", script)


def route_machine(nodes: list[Node]) -> None:
    """The machine reaches pods by their node, and Services through the first node's kube-proxy."""
    for node in nodes:
        run("ip", "route", "add", node.pod_range, "via", node.address)
    run("ip", "route", "add", SERVICE_RANGE, "via", nodes[0].address)


def set_link(node: Node, up: bool) -> None:
    """Plugs or cuts one node's cable."""
    run(*in_fabric("ip", "link", "set", node.link, "up" if up else "down"))
    if up:
        run(*in_fabric("ip", "route", "replace", node.pod_range, "via", node.address))
