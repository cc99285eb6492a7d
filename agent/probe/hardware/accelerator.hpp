// SPDX-License-Identifier: Apache-2.0
// Which PCI functions are accelerators, and their resource names in Kubernetes: one table for all
// vendors. The probes, the agent's report and the collector use it. Pure; nothing fails.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

inline constexpr std::uint32_t kNvidia = 0x10de;

struct AcceleratorKind {
  std::string_view vendor;
  // resource name of a whole device, as the vendor's device plugin advertises it
  std::string_view resource;
};

/// The table's row for this function; null if it is no accelerator.
const AcceleratorKind* accelerator_kind(const PciFunction& function);

/// True for an accelerator that the node keeps for virtual machines, so that no container can use
/// it: one that is bound to a VFIO driver, and NVIDIA's virtual functions (vGPU).
bool is_kept_for_guests(const PciFunction& function);

/// A GPU of NVIDIA. The topology files of clouds name the PCI class alone, and of the vendors that
/// NCCL serves only NVIDIA has 3D controllers.
bool is_nvidia(const PciFunction& function);

/// "nvidia.com/mig-1g.10gb" for the profile "1g.10gb"; a profile with media extensions,
/// "1g.10gb+me", ends in ".me".
std::string mig_resource(std::string_view profile);

/// True for the resource names in common/contract/accelerators.hpp: a whole device, a share of one,
/// or a part of one.
bool is_accelerator_resource(std::string_view name);

/// The GPU of a device that the kubelet assigned as this resource with this id; null if the id
/// matches no GPU. Device plugins use UUIDs, PCI addresses or indices as ids; the id of a shared
/// device ends in "::" and a number.
const Gpu* gpu_of_device(std::string_view resource, std::string_view id,
                         const std::vector<Gpu>& gpus);

/// NVML's "00000000:3B:00.0" as sysfs writes it, "0000:3b:00.0".
std::string sysfs_address(std::string_view nvml_bus_id);

/// PCI-to-PCI bridge: a root port, or a port of a switch.
bool is_pci_bridge(const PciFunction& function);

}  // namespace paceline::agent
