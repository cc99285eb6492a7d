// SPDX-License-Identifier: Apache-2.0
// Reads a node's hardware from the kernel's files and from NVML. One file per device kind; all are
// pure functions of the files they read.
//
// Thread-safe for different Root values. Failure looks like absence: a device that cannot be read
// is left out or lacks the field, and what a person must mend (a GPU without its library) is said
// in GpuReport::problem.
#pragma once

#include "agent/probe/hardware.hpp"
#include "agent/probe/nvml.hpp"
#include "agent/probe/root.hpp"

namespace paceline::agent {

Cpu probe_cpu(const Root& root);

/// Network devices with hardware behind them: no veth, bridge, tunnel or loopback, and of SR-IOV
/// only the physical functions.
std::vector<Nic> probe_nics(const Root& root);

/// Every PCI function with its place in the tree, in order of address; at most 4096.
std::vector<PciFunction> probe_pci(const Root& root);

/// False when the function's configuration space reads as ones: the device fell off the bus.
bool pci_answers(const Root& root, std::string_view address);

/// RDMA devices with their ports and GIDs; of SR-IOV only the physical functions.
std::vector<RdmaDevice> probe_rdma(const Root& root);

/// GPUs that NVML shows, with the NUMA node that sysfs gives; compares with the NVIDIA functions on
/// the PCI bus. Accelerators of other vendors are known by the bus alone.
GpuReport probe_gpus(const std::vector<PciFunction>& pci, GpuLibrary& library);

Hardware probe_hardware(const Root& root, GpuLibrary& library);

}  // namespace paceline::agent
