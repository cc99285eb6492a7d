// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

constexpr std::int64_t kEthernet = 1;     // ARPHRD_ETHER
constexpr std::int64_t kInfiniband = 32;  // ARPHRD_INFINIBAND

}  // namespace

std::vector<Nic> probe_nics(const Root& root) {
  std::vector<Nic> nics;
  const auto folder = root.sys() / "class/net";
  for (const auto& name : list_names(folder)) {
    const auto device = folder / name / "device";
    std::error_code error;
    if (!std::filesystem::exists(device, error)) continue;  // virtual: veth, bridge, bond, loopback
    if (std::filesystem::exists(device / "physfn", error)) continue;
    const auto type = read_number(folder / name / "type");
    if (type != kEthernet && type != kInfiniband) continue;

    Nic nic;
    nic.name = name;
    if (const auto driver = resolve(device / "driver")) nic.driver = driver->filename().string();
    nic.mtu = read_number(folder / name / "mtu").value_or(0);
    nic.pci_address = pci_address(device).value_or("");
    if (!nic.pci_address.empty()) nic.numa_node = pci_numa_node(root, nic.pci_address);
    const std::string state = read_text(folder / name / "operstate").value_or("");
    // Some virtual NICs never report "up"; read the carrier instead.
    nic.up = state == "up" || (state == "unknown" && read_number(folder / name / "carrier") == 1);
    // Some drivers report the last speed of a link that is down.
    const auto speed = nic.up ? read_number(folder / name / "speed") : std::nullopt;
    if (speed && *speed > 0) nic.speed_mbps = *speed;
    nics.push_back(std::move(nic));
  }
  return nics;
}

}  // namespace paceline::agent
