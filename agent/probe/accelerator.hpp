// SPDX-License-Identifier: Apache-2.0
// Which PCI functions are accelerators, and what Kubernetes calls them: one table for every vendor. Pure; nothing fails.
#pragma once

#include <string>
#include <string_view>

#include "agent/probe/hardware.hpp"

namespace paceline::agent {

inline constexpr std::uint32_t kNvidia = 0x10de;

struct AcceleratorKind {
  std::string_view vendor;
  std::string_view resource;  // of a whole device, as the vendor's device plugin advertises it
};

/// The table's row for this function; null for everything that is not an accelerator.
const AcceleratorKind* accelerator_kind(const PciFunction& function);

/// "nvidia.com/mig-1g.10gb" for the profile "1g.10gb"; a profile with media extensions, "1g.10gb+me", ends in ".me".
std::string mig_resource(std::string_view profile);

/// PCI-to-PCI bridge: a root port, or a port of a switch.
bool is_pci_bridge(const PciFunction& function);

}  // namespace paceline::agent
