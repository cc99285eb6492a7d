// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/probe.hpp"

#include <string>

#include "agent/probe/gpu/probe_gpus.hpp"
#include "agent/probe/sysfs/devices.hpp"

namespace paceline::agent {

Hardware probe_hardware(const Root& root, GpuLibrary& library) {
  Hardware hardware;
  hardware.cpu = probe_cpu(root);
  hardware.nics = probe_nics(root);
  hardware.pci = probe_pci(root);
  hardware.rdma = probe_rdma(root);
  hardware.gpu = probe_gpus(hardware.pci, library);
  if (!hardware.gpu.library_problem.empty())
    hardware.gpu.driver_is_loaded = read_text(root.proc() / "driver/nvidia/version").has_value();
  if (hardware.pci.size() >= kMostPciFunctions && hardware.gpu.problem.empty()) {
    hardware.gpu.problem = "the bus has " + std::to_string(kMostPciFunctions) +
                           " PCI functions or more; devices beyond that number are not shown";
  }
  return hardware;
}

}  // namespace paceline::agent
