// SPDX-License-Identifier: Apache-2.0
// Which PCI functions are accelerators, and what Kubernetes calls them: one table for every vendor.
// Pure; nothing fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

inline constexpr std::uint32_t kNvidia = 0x10de;

struct AcceleratorKind {
  std::string_view vendor;
  std::string_view resource;  // of a whole device, as the vendor's device plugin advertises it
};

/// The table's row for this function; null for everything that is not an accelerator.
const AcceleratorKind* accelerator_kind(const PciFunction& function);

/// "nvidia.com/mig-1g.10gb" for the profile "1g.10gb"; a profile with media extensions,
/// "1g.10gb+me", ends in ".me".
std::string mig_resource(std::string_view profile);

/// A whole device, a share of one, or a part of it, as common/contract/accelerators.hpp has them
/// for all of Paceline.
bool is_accelerator_resource(std::string_view name);

/// The GPU behind a device that the kubelet gave out as this resource under this id; null where the
/// id names none of these. Ids are UUIDs, PCI addresses or indices, as the vendors' device plugins
/// choose; "::" and a number end that of a shared one.
const Gpu* gpu_of_device(std::string_view resource, std::string_view id,
                         const std::vector<Gpu>& gpus);

/// NVML's "00000000:3B:00.0" as sysfs writes it, "0000:3b:00.0".
std::string sysfs_address(std::string_view nvml_bus_id);

/// PCI-to-PCI bridge: a root port, or a port of a switch.
bool is_pci_bridge(const PciFunction& function);

}  // namespace paceline::agent
