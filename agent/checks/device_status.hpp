// SPDX-License-Identifier: Apache-2.0
// The checks' results for each GPU, each NIC and each pair, for the agent's metrics. Findings also
// name bridges, ports and network devices, but a metric needs labels that other metrics have too.
// Each subject is mapped to the devices that it stands for; the worst finding about a device
// counts.
//
// Pure; thread-safe as any value is. Nothing fails. Bounded by kMostGpus, kMostNics and kMostPairs:
// a device beyond the bound is reported without that label, never left out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"

namespace paceline::agent {

struct DeviceStatus {
  std::string check;
  std::string gpu;  // a label of the fabric, "GPU0"; empty for no particular GPU
  std::string nic;  // a NIC's label, "mlx5_0"; empty for no particular NIC
  int value = 0;    // 0 ok, 1 warn, 2 fail
  bool operator==(const DeviceStatus&) const = default;
};

inline constexpr std::size_t kMostGpus = 32;
inline constexpr std::size_t kMostNics = 64;
/// Pairs of one check. If there are more, a GPU's pairs are reported as that GPU.
inline constexpr std::size_t kMostPairs = 256;

/// Sorted by check, GPU and NIC. Skipped and unknown findings have no status, neither good nor bad.
std::vector<DeviceStatus> device_statuses(const Node& node, const std::vector<Finding>& findings);

}  // namespace paceline::agent
