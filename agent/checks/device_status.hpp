// SPDX-License-Identifier: Apache-2.0
// What the checks say of each GPU, each NIC, and each pair of the two: findings name bridges, ports
// and network devices as well, and a metric wants labels that others have, too. Each subject counts
// for the devices that it stands for; of several findings about the same devices the worst speaks.
//
// Pure; thread-safe as any value is. Nothing fails. Bounded by kMostGpus, kMostNics and kMostPairs:
// what lies beyond is told without that label, never left out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"

namespace paceline::agent {

struct DeviceStatus {
  std::string check;
  std::string gpu;  // a label of the fabric, "GPU0"; empty: no GPU in particular
  std::string nic;  // likewise
  int value = 0;    // 0 ok, 1 warn, 2 fail
  bool operator==(const DeviceStatus&) const = default;
};

inline constexpr std::size_t kMostGpus = 32;
inline constexpr std::size_t kMostNics = 64;
/// Of one check; with more, a GPU's pairs are told as that GPU.
inline constexpr std::size_t kMostPairs = 256;

/// In the order of check, GPU, NIC. What is skipped or not known has no status: it is neither well
/// nor ill.
std::vector<DeviceStatus> device_statuses(const Node& node, const std::vector<Finding>& findings);

}  // namespace paceline::agent
