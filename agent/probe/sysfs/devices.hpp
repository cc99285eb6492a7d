// SPDX-License-Identifier: Apache-2.0
// Reads CPUs, network devices, RDMA devices and PCI functions from the kernel's files.
// probe_hardware (probe.hpp) calls all four; the fingerprint and paceline-probe call some.
//
// Each function depends only on the files that it reads. Thread-safe for different Root values.
// A device that cannot be read is left out, and a field that cannot be read is empty.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

Cpu probe_cpu(const Root& root);

/// Network devices with hardware behind them: no veth, bridge, tunnel or loopback. With SR-IOV,
/// the physical functions only, without representors.
std::vector<Nic> probe_nics(const Root& root);

/// True for the network device by which a NIC's own switch (switchdev) shows the port of a virtual
/// function. It lies beside the NIC's network device, and its settings are not the NIC's.
bool is_representor(const std::filesystem::path& netdev);

/// list_names returns no more names of one folder.
inline constexpr std::size_t kMostPciFunctions = 16384;

/// Every PCI function with its place in the tree, in bus order; at most kMostPciFunctions.
std::vector<PciFunction> probe_pci(const Root& root);

/// False if the function's configuration space reads as all ones: the device fell off the bus.
bool pci_answers(const Root& root, std::string_view address);

/// Vital product data of a ConnectX-7 on a board of B200 that manages its NVSwitches holds this
/// word. Apart from it such a function looks like any NIC.
inline constexpr std::string_view kManagesSwitches = "SW_MNG";
/// Whether the device in this folder is such a function. Only InfiniBand functions of NVIDIA are
/// asked: an answer takes a device some milliseconds, and root.
bool manages_switches(const std::filesystem::path& device);

/// RDMA devices with their ports and GIDs. With SR-IOV, the physical functions only.
std::vector<RdmaDevice> probe_rdma(const Root& root);

}  // namespace paceline::agent
