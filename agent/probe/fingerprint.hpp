// SPDX-License-Identifier: Apache-2.0
// The cheap question between two probes: did anything change that a job would feel? Link states of
// NICs and RDMA ports, devices that came or went, accelerators that no longer answer on the bus,
// GPUs that the library no longer shows. A few hundred small reads.
#pragma once

#include <string>
#include <vector>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

/// A text that is another one when something changed; says nothing else. `known`: the last probe's
/// functions, whose accelerators to look at.
std::string fingerprint(const Root& root, GpuLibrary& library,
                        const std::vector<PciFunction>& known);

}  // namespace paceline::agent
