// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/hardware/rdma.hpp"

namespace paceline::agent {

bool is_efa(const RdmaDevice& device) { return device.driver == "efa"; }

std::string link_layer_name(const RdmaDevice& device, const RdmaPort& port) {
  if (is_efa(device)) return "EFA";
  const bool known = !port.link_layer.empty() && port.link_layer != "Unknown";
  return known ? port.link_layer : std::string(kUnknownLayer);
}

}  // namespace paceline::agent
