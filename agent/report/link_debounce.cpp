// SPDX-License-Identifier: Apache-2.0
#include "agent/report/link_debounce.hpp"

#include <algorithm>
#include <set>

namespace paceline::agent {

std::optional<SteadyTime> LinkDebounce::apply(Hardware& hardware, SteadyTime now) {
  std::optional<SteadyTime> due;
  std::set<std::string> present;
  // True if the link is up, but not for long enough.
  const auto held = [&](const std::string& link, bool up) {
    present.insert(link);
    if (!up) {
      last_down_[link] = now;
      return false;
    }
    const auto down = last_down_.find(link);
    if (down == last_down_.end()) return false;
    const SteadyTime settled = down->second + hold_;
    if (now >= settled) {
      last_down_.erase(down);
      return false;
    }
    due = due ? std::min(*due, settled) : settled;
    return true;
  };
  for (auto& nic : hardware.nics) {
    if (!held(nic.name, nic.up)) continue;
    nic.up = false;
    nic.speed_mbps.reset();
  }
  for (auto& device : hardware.rdma) {
    for (auto& port : device.ports) {
      if (!held(device.name + "/" + std::to_string(port.number), port.state == "ACTIVE")) continue;
      port.state = "DOWN";
      port.rate_mbps.reset();
    }
  }
  std::erase_if(last_down_, [&](const auto& entry) { return !present.contains(entry.first); });
  return due;
}

}  // namespace paceline::agent
