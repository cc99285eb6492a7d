# SPDX-License-Identifier: Apache-2.0
"""A node: containerd, kubelet and kube-proxy in a network and a mount namespace, below a cgroup of
the node's own.
"""

from __future__ import annotations

import json
from pathlib import Path

from . import cgroups, network
from .certificates import Authority
from .control_plane import LOGS, PKI, kubectl, start_daemon, wait_until
from .state import DNS_ADDRESS, POD_RANGE, ClusterError, Node, State, run

PAUSE_IMAGE = "docker.io/paceline/pause:dev"
BOUND = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "containerd-run": "/run/containerd",
    "cni": "/var/lib/cni",
    "pod-logs": "/var/log/pods",
    "container-logs": "/var/log/containers",
    "cni-conf": "/etc/cni/net.d",
    "netns": "/run/netns",
    # What the chart's agents keep on their node.
    "paceline": "/var/lib/paceline",
    "paceline-look": "/run/paceline-look",
}


def create(state: State, node: Node) -> None:
    network.create_node(node, state.all_nodes)
    cgroups.create(node.cgroup)
    for folder, target in BOUND.items():
        (node.data / folder).mkdir(parents=True, exist_ok=True)
        if not Path(target).exists():
            state.made_folders.append(target)
            state.save()
            Path(target).mkdir(parents=True)
        run(*node.inside("mount", "--bind", str(node.data / folder), target))
    run(*node.inside("mount", "--make-rshared", "/"))
    _write_settings(node)


def _write_settings(node: Node) -> None:
    bridge = {
        "cniVersion": "0.4.0",
        "name": "paceline",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": node.pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    (node.data / "cni-conf" / "10-paceline.conflist").write_text(json.dumps(bridge))
    (node.data / "resolv.conf").write_text("# no name servers beyond the cluster\n")
    (node.data / "containerd.toml").write_text(f"""version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  # Sandboxes die without CAP_SYS_RESOURCE otherwise.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
""")
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(PKI / "ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(node.data / "resolv.conf"),
        "volumePluginDir": str(node.data / "volume-plugins"),
        "healthzBindAddress": "127.0.0.1",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 4,
        "maxPods": 110,
        "registerNode": True,
    }
    (node.data / "kubelet.json").write_text(json.dumps(kubelet))


def start_containerd(state: State, node: Node) -> None:
    config = str(node.data / "containerd.toml")
    socket = node.data / "containerd-run" / "containerd.sock"
    socket.unlink(missing_ok=True)  # of a containerd that was killed
    start_daemon(
        f"{node.name}-containerd",
        node.cgroup,
        node.inside("containerd", "--config", config, "--log-level=warn"),
    )
    wait_until(
        f"containerd of {node.name}", socket.exists, 30, LOGS / f"{node.name}-containerd.log"
    )


def load_image(node: Node, tar: Path) -> None:
    run(*node.inside("ctr", "--namespace=k8s.io", "images", "import", str(tar)))


def start_kubelet(state: State, node: Node) -> None:
    config = PKI / f"{node.name}.kubeconfig"
    if not config.exists():
        Authority(PKI).kubeconfig(node.name, f"/O=system:nodes/CN=system:node:{node.name}")
    command = [
        state.tool("kubelet"),
        f"--config={node.data / 'kubelet.json'}",
        f"--kubeconfig={config}",
    ]
    command += [f"--hostname-override={node.name}", f"--node-ip={node.address}"]
    start_daemon(f"{node.name}-kubelet", node.cgroup, node.inside(*command))


def start_proxy(state: State, node: Node) -> None:
    config = Authority(PKI).kubeconfig(f"{node.name}-proxy", "/CN=system:kube-proxy")
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(config)},
        "hostnameOverride": node.name,
        "clusterCIDR": POD_RANGE,
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "100ms"},
        "oomScoreAdj": 0,
    }
    file = node.data / "kube-proxy.json"
    file.write_text(json.dumps(settings))
    start_daemon(
        f"{node.name}-kube-proxy",
        node.cgroup,
        node.inside(state.tool("kube-proxy"), f"--config={file}"),
    )


def wait_ready(state: State, node: Node) -> None:
    def ready() -> bool:
        try:
            answer = json.loads(kubectl(state, "get", "node", node.name, "-o", "json"))
        except ClusterError:
            return False
        return any(
            c["type"] == "Ready" and c["status"] == "True" for c in answer["status"]["conditions"]
        )

    wait_until(f"{node.name} Ready", ready, 180, LOGS / f"{node.name}-kubelet.log")
