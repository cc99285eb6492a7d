// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/hardware/nvlinks.hpp"

#include <algorithm>

#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/hardware/hypervisor.hpp"

namespace paceline::agent {
namespace {

constexpr std::uint32_t kNvSwitchClass = 0x0680;

/// In a virtual machine the links that lead out of it are switched off.
bool passed_through(const Hardware& hardware, const Gpu& gpu) {
  return std::any_of(hardware.pci.begin(), hardware.pci.end(), [&](const PciFunction& function) {
    return function.address == gpu.pci_address && placed_by_hypervisor(hardware.pci, function);
  });
}

bool leads_to_gpus(const Gpu& gpu) {
  return std::any_of(gpu.nvlinks.begin(), gpu.nvlinks.end(), [](const NvLink& link) {
    return link.active && link.remote == NvLinkRemote::kGpu;
  });
}

/// Whether the board connects all links of this GPU, so that a link without traffic is a fault.
bool all_connected(const Hardware& hardware, const Gpu& gpu) {
  if (has_own_switches(hardware)) return true;
  if (gpu.nvlink_fabric && gpu.nvlink_fabric->state != 0) return true;
  if (gpu.model.find("SXM") != std::string::npos && !passed_through(hardware, gpu)) return true;
  // The far end of a link that leaves the machine is a switch, shown or not.
  return std::any_of(gpu.nvlinks.begin(), gpu.nvlinks.end(), [](const NvLink& link) {
    return link.active && link.remote != NvLinkRemote::kGpu &&
           (link.remote == NvLinkRemote::kSwitch || link.remote_address.empty());
  });
}

}  // namespace

bool has_own_switches(const Hardware& hardware) {
  return std::any_of(hardware.pci.begin(), hardware.pci.end(), [](const PciFunction& function) {
    return function.vendor == kNvidia && function.class_code >> 8U == kNvSwitchClass;
  });
}

int active_nvlinks(const Gpu& gpu) {
  return static_cast<int>(std::count_if(gpu.nvlinks.begin(), gpu.nvlinks.end(),
                                        [](const NvLink& link) { return link.active; }));
}

std::optional<int> expected_nvlinks(const Hardware& hardware, const Gpu& gpu) {
  const auto& gpus = hardware.gpu.gpus;
  std::size_t most = 0;
  int most_active = 0;
  bool any_mig = false;
  for (const auto& one : gpus) {
    most = std::max(most, one.nvlinks.size());
    most_active = std::max(most_active, active_nvlinks(one));
    any_mig = any_mig || one.mig;
  }
  if (most == 0 || gpu.mig) return std::nullopt;
  // Without switches between them, the links to a GPU in MIG mode are off at both ends.
  if (any_mig && leads_to_gpus(gpu)) return most_active;
  const bool board = std::any_of(gpus.begin(), gpus.end(),
                                 [&](const Gpu& one) { return all_connected(hardware, one); });
  if (board) return static_cast<int>(most);
  return active_nvlinks(gpu) > 0 ? std::optional(most_active) : std::nullopt;
}

}  // namespace paceline::agent
