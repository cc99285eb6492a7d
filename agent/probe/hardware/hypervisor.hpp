// SPDX-License-Identifier: Apache-2.0
// What the PCI bus of a virtual machine shows, and what it hides. The fabric and the NVLinks use
// it. Pure; nothing fails.
#pragma once

#include <vector>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// True if the place of this function says nothing of the machine below: it is directly on a host
/// bridge, or alone behind a root port that the hypervisor emulates. A hypervisor that copies the
/// machine's switches shows longer paths, and they count.
bool placed_by_hypervisor(const std::vector<PciFunction>& pci, const PciFunction& function);

}  // namespace paceline::agent
