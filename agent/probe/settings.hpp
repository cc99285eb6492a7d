// SPDX-License-Identifier: Apache-2.0
// How the node is set up, as far as it matters for the way between GPUs and NICs: kernel, modules,
// IOMMU, PCI configuration, counters. Beside hardware.hpp, which says what the node is made of; the
// checks judge both.
//
// Plain values, read in one go. Thread-safe for different Root values. Failure looks like absence:
// what could not be read is absent, and the check that wanted it says so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/pci/pci_config.hpp"
#include "agent/probe/pci/pci_snapshot.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

/// One PCI function.
struct FunctionSettings {
  PciConfig config;
  bool in_iommu_group = false;
  std::string iommu_type;  // "identity", "DMA", "DMA-FQ"; empty: the kernel does not say
  std::string max_link_speed;
  std::string max_link_width;
  std::optional<std::uint64_t> bar1_mib;
};

/// Quality of service of a network device, as the NIC vendor's driver shows it; all absent with the
/// kernel's own driver.
struct QosSettings {
  std::string trust;     // "dscp", "pcp"
  std::vector<int> pfc;  // priorities with flow control
  bool pfc_known = false;
  std::map<int, bool> notification_point;  // by priority: ECN answered
  std::map<int, bool> reaction_point;      // by priority: ECN obeyed
};

/// Errors counted since the driver was loaded: "mlx5_0/1 link_downed", "0000:1b:00.0
/// nvlink_errors".
using Counters = std::map<std::string, std::uint64_t>;
/// The name of a GPU's NVLink errors among them. By its address: an index moves when another GPU is
/// lost.
std::string nvlink_counter(const Gpu& gpu);

struct Settings {
  std::string kernel;                  // "5.15.0-91-generic"
  std::optional<std::string> cmdline;  // of the kernel
  bool hypervisor = false;             // the processor says that it is a virtual one
  /// Module -> the modules that use it; absent when /proc/modules cannot be read.
  std::optional<std::map<std::string, std::vector<std::string>>> modules;
  std::optional<std::vector<std::string>> char_devices;  // names in /proc/devices
  std::string nvidia_driver;                             // line of /proc/driver/nvidia/version
  // what NCCL takes for peer memory: names of the modules
  std::vector<std::string> peer_memory;
  std::optional<std::int64_t> peerdirect_support;
  std::string mlx5_version;
  // names that concern us, of those that can be seen
  std::vector<std::string> processes;
  bool sees_all_processes = false;                  // process 1 is an init, not a container's
  std::vector<std::string> imex_channels;           // device files
  std::map<std::uint64_t, std::int64_t> hugepages;  // size in KiB -> how many
  // by address: accelerators, NICs, bridges above them
  std::map<std::string, FunctionSettings> functions;
  std::map<std::string, QosSettings> qos;  // by network device
  // of the RDMA devices' network devices, also of those without hardware
  std::map<std::string, std::int64_t> mtus;
  Counters counters;
};

/// What the kernel hides of PCI configuration space is taken from the snapshot.
Settings read_settings(const Root& root, const Hardware& hardware,
                       const PciSnapshot& snapshot = {});

/// What NCCL takes for peer memory: the names of the modules that are loaded.
std::vector<std::string> peer_memory_modules(const Root& root);

/// Users of every module in the text of /proc/modules.
std::map<std::string, std::vector<std::string>> parse_modules(std::string_view text);

}  // namespace paceline::agent
