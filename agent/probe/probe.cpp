// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/probe.hpp"

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
  return hardware;
}

}  // namespace paceline::agent
