// SPDX-License-Identifier: Apache-2.0
// Reads CPUs, network devices, RDMA devices and PCI functions from the kernel's files.
// probe_hardware (probe.hpp) calls all four; the fingerprint and paceline-probe call some.
//
// Each function depends only on the files that it reads. Thread-safe for different Root values.
// A device that cannot be read is left out, and a field that cannot be read is empty.
#pragma once

#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

Cpu probe_cpu(const Root& root);

/// Network devices with hardware behind them: no veth, bridge, tunnel or loopback. With SR-IOV,
/// the physical functions only.
std::vector<Nic> probe_nics(const Root& root);

/// Every PCI function with its place in the tree, sorted by address; at most 4096.
std::vector<PciFunction> probe_pci(const Root& root);

/// False if the function's configuration space reads as all ones: the device fell off the bus.
bool pci_answers(const Root& root, std::string_view address);

/// RDMA devices with their ports and GIDs. With SR-IOV, the physical functions only.
std::vector<RdmaDevice> probe_rdma(const Root& root);

}  // namespace paceline::agent
