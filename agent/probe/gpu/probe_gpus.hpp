// SPDX-License-Identifier: Apache-2.0
// Finds the node's accelerators. probe_hardware (probe.hpp) calls it with NVML, paceline-probe
// with no library.
//
// Pure apart from the calls to the library. What a person must fix is in GpuReport::problem.
#pragma once

#include <vector>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// The GPUs that the library shows, with the NUMA node that sysfs gives, compared with the NVIDIA
/// functions on the PCI bus. Accelerators of other vendors are found on the bus alone.
GpuReport probe_gpus(const std::vector<PciFunction>& pci, GpuLibrary& library);

}  // namespace paceline::agent
