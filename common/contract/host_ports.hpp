// SPDX-License-Identifier: Apache-2.0
// The ports of a pod in the network of its node (hostNetwork). Each such pod of a node has a block
// of ports of its own, which the operator chooses and the launcher learns by PACELINE_PORT_BASE.
// The blocks lie below Kubernetes' node ports, outgoing connections, and what launchers draw
// (common/net/ports.hpp). Pure.
#pragma once

#include <cstdint>

namespace paceline::contract {

inline constexpr int kFirstHostPort = 16000;
inline constexpr int kHostPortsOfPod = 100;
inline constexpr int kMostHostPods = 40;  // on a node
inline constexpr int kEndOfHostPorts = kFirstHostPort + kMostHostPods * kHostPortsOfPod;

/// The largest port that a pod's ports may start with.
inline constexpr int kLastPortBase = 65535 - (kHostPortsOfPod - 1);

/// The first port of a block; `base` below is such a port.
constexpr std::uint16_t host_port_base(int block) {
  return static_cast<std::uint16_t>(kFirstHostPort + block * kHostPortsOfPod);
}

/// The block that has the port; -1: none.
constexpr int host_port_block(int port) {
  if (port < kFirstHostPort || port >= kEndOfHostPorts) return -1;
  return (port - kFirstHostPort) / kHostPortsOfPod;
}

/// Of the launcher of node rank 0.
constexpr std::uint16_t host_rendezvous_port(std::uint16_t base) { return base; }

/// Of the launcher: /metrics, /v1/summary and /healthz.
constexpr std::uint16_t host_http_port(std::uint16_t base) {
  return static_cast<std::uint16_t>(base + 1);
}

/// Of a process, in frameworks whose processes listen. A pod has at most 64.
constexpr std::uint16_t host_process_port(std::uint16_t base, int local_rank) {
  return static_cast<std::uint16_t>(base + 10 + local_rank);
}

/// Of the framework's rank 0. A restart does not meet the sockets of the attempt before.
constexpr std::uint16_t host_master_port(std::uint16_t base, int attempt) {
  return static_cast<std::uint16_t>(base + 80 + attempt % 20);
}

/// Names of container ports. The job's Service finds the rendezvous by its name, and Prometheus the
/// metrics.
inline constexpr const char* kHostRendezvousPortName = "paceline-meet";
inline constexpr const char* kHostHttpPortName = "paceline-http";

/// Port of the job's Service that leads to the one with that name.
inline constexpr std::uint16_t kHostRendezvousServicePort = 29402;

}  // namespace paceline::contract
