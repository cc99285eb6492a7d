// SPDX-License-Identifier: Apache-2.0
// A fingerprint of the node's devices, made between two probes: link states of NICs and RDMA ports,
// devices on the PCI bus, accelerators that stopped answering, GPUs that the library shows. A few
// hundred small reads. The agent's loop compares fingerprints and probes at once if they differ.
#pragma once

#include <string>
#include <vector>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

/// A text that changes when one of these states changes; it has no other meaning. `known` holds the
/// PCI functions of the last probe, whose accelerators are read.
std::string fingerprint(const Root& root, GpuLibrary& library,
                        const std::vector<PciFunction>& known);

}  // namespace paceline::agent
