// SPDX-License-Identifier: Apache-2.0
// How the node is set up, as far as it affects the path between GPUs and NICs: kernel, modules,
// IOMMU, PCI configuration, counters. hardware.hpp says what the node is made of; the checks judge
// both.
//
// Plain values, read in one call. Thread-safe for different Root values. What cannot be read is
// absent, and the check that needs it reports that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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

/// Quality of service of a network device. Only the NIC vendor's driver shows it; with the kernel's
/// own driver all fields are absent.
struct QosSettings {
  std::string trust;     // "dscp", "pcp"
  std::vector<int> pfc;  // priorities with flow control
  bool pfc_known = false;
  std::map<int, bool> notification_point;  // by priority: whether congestion notifications are sent
  std::map<int, bool> reaction_point;  // by priority: whether congestion notifications are obeyed
};

/// Errors since the driver was loaded: "mlx5_0/1 link_downed", "0000:1b:00.0 nvlink_errors".
using Counters = std::map<std::string, std::uint64_t>;
/// The key of a GPU's NVLink errors. It holds the address, because an index changes when another
/// GPU is lost.
std::string nvlink_counter(const Gpu& gpu);

struct Settings {
  std::string kernel;                  // "5.15.0-91-generic"
  std::optional<std::string> cmdline;  // the kernel's command line
  bool hypervisor = false;             // the CPU flags say that this is a virtual machine
  /// Module -> the modules that use it; absent when /proc/modules cannot be read.
  std::optional<std::map<std::string, std::vector<std::string>>> modules;
  std::optional<std::vector<std::string>> char_devices;  // names in /proc/devices
  std::string nvidia_driver;                             // line of /proc/driver/nvidia/version
  // modules that NCCL accepts as peer memory
  std::vector<std::string> peer_memory;
  std::optional<std::int64_t> peerdirect_support;
  std::string mlx5_version;
  // RDMA drivers that are loaded or built in: "mlx5_ib", "efa", "efa_nv_peermem"
  std::vector<std::string> rdma_modules;
  /// Xid errors in the kernel log by GPU, each once; absent if the log cannot be read.
  std::optional<std::map<std::string, std::vector<int>>> xids;
  // names of the visible processes that a check looks for
  std::vector<std::string> processes;
  bool sees_all_processes = false;         // process 1 is the node's init, not a container's
  std::vector<std::string> imex_channels;  // device files
  std::map<std::uint64_t, std::int64_t> hugepages;  // size in KiB -> how many
  // by address: accelerators, NICs, and the bridges above them
  std::map<std::string, FunctionSettings> functions;
  std::map<std::string, QosSettings> qos;  // by network device
  // MTUs of the RDMA devices' network devices, also of those without hardware
  std::map<std::string, std::int64_t> mtus;
  // network devices that RDMA devices name and that are not here: a pod may have them
  std::set<std::string> netdevs_elsewhere;
  Counters counters;
};

/// Reads all settings. Configuration space that the kernel does not show comes from the snapshot.
Settings read_settings(const Root& root, const Hardware& hardware,
                       const PciSnapshot& snapshot = {});

/// The loaded modules that NCCL accepts as peer memory.
std::vector<std::string> peer_memory_modules(const Root& root);

/// The Xid errors in the text of /dev/kmsg, by the address of their GPU.
std::map<std::string, std::vector<int>> parse_xids(std::string_view text);

/// The users of every module in the text of /proc/modules.
std::map<std::string, std::vector<std::string>> parse_modules(std::string_view text);

}  // namespace paceline::agent
