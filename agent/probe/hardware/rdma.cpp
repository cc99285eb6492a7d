// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/hardware/rdma.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace paceline::agent {

bool is_efa(const RdmaDevice& device) { return device.driver == "efa"; }

bool is_virtual_function(const PciFunction& function) {
  constexpr std::uint32_t kMellanox = 0x15b3;
  // Connect-IB to ConnectX-6, all later ConnectX, BlueField.
  constexpr std::array<std::uint32_t, 8> kVirtual{0x1012, 0x1014, 0x1016, 0x1018,
                                                  0x101a, 0x101c, 0x101e, 0xa2d3};
  return function.virtual_function ||
         (function.vendor == kMellanox &&
          std::find(kVirtual.begin(), kVirtual.end(), function.device) != kVirtual.end());
}

std::string link_layer_name(const RdmaDevice& device, const RdmaPort& port) {
  if (is_efa(device)) return "EFA";
  const bool known = !port.link_layer.empty() && port.link_layer != "Unknown";
  return known ? port.link_layer : std::string(kUnknownLayer);
}

}  // namespace paceline::agent
