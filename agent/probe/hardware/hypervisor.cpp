// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/hardware/hypervisor.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace paceline::agent {
namespace {

// The makers of root ports that exist in virtual machines only: QEMU's pcie-root-port, and that of
// VMware.
constexpr std::uint32_t kRedHat = 0x1b36;
constexpr std::uint32_t kVmware = 0x15ad;

}  // namespace

bool placed_by_hypervisor(const std::vector<PciFunction>& pci, const PciFunction& function) {
  constexpr std::size_t kOnHostBridge = 2;  // the host bridge, the function
  if (function.path.size() <= kOnHostBridge) return true;
  if (function.path.size() > kOnHostBridge + 1) return false;
  const std::string& port = function.path[1];
  return std::any_of(pci.begin(), pci.end(), [&](const PciFunction& above) {
    return above.address == port && (above.vendor == kRedHat || above.vendor == kVmware);
  });
}

}  // namespace paceline::agent
