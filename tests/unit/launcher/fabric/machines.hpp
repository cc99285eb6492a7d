// SPDX-License-Identifier: Apache-2.0
// Machines as the launcher describes them, for tests of what is set on them.
#pragma once

#include <string>
#include <vector>

#include "launcher/fabric/machine.hpp"

namespace paceline::fabric {

/// Like ports of one kind: `count` devices PREFIX0, PREFIX1, …, each on a card of its own.
struct Group {
  int count = 0;
  std::string prefix = {};
  std::int64_t gbps = 0;
  std::string layer = "InfiniBand";
};

inline RdmaPort port_of(const Group& group, int index) {
  RdmaPort port;
  port.device = group.prefix + std::to_string(index);
  port.active = true;
  port.layer = group.layer;
  port.gbps = group.gbps;
  port.kind = "board of " + group.prefix + ".0:1";
  port.address = group.prefix + ":" + std::to_string(index);
  if (group.layer == "Ethernet") port.ipv4_gid = 3;
  return port;
}

inline std::vector<RdmaPort> ports_of(const std::vector<Group>& groups) {
  std::vector<RdmaPort> ports;
  for (const Group& group : groups) {
    for (int index = 0; index < group.count; ++index) ports.push_back(port_of(group, index));
  }
  return ports;
}

}  // namespace paceline::fabric
