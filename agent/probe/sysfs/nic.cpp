// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <filesystem>

#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {
namespace {

constexpr std::int64_t kEthernet = 1;     // ARPHRD_ETHER
constexpr std::int64_t kInfiniband = 32;  // ARPHRD_INFINIBAND

}  // namespace

bool is_representor(const std::filesystem::path& netdev) {
  // "pf0vf1", "pf0sf88", "c1pf0": the port of a function. The NIC's own port is "p0".
  const std::string port = read_text(netdev / "phys_port_name").value_or("");
  std::size_t at = 0;
  if (port.starts_with('c')) at = port.find_first_not_of("0123456789", 1);
  return at != std::string::npos && port.size() > at + 2 && port.compare(at, 2, "pf") == 0 &&
         std::isdigit(static_cast<unsigned char>(port[at + 2])) != 0;
}

std::vector<Nic> probe_nics(const Root& root) {
  std::vector<Nic> nics;
  const auto folder = root.sys() / "class/net";
  for (const auto& name : list_names(folder)) {
    const auto device = folder / name / "device";
    std::error_code error;
    if (!std::filesystem::exists(device, error)) continue;  // virtual: veth, bridge, bond, loopback
    if (std::filesystem::exists(device / "physfn", error)) continue;
    if (is_representor(folder / name)) continue;
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
