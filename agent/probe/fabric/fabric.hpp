// SPDX-License-Identifier: Apache-2.0
// Distances between the devices of a node: distance classes, NVLink groups and domain, rails.
// `paceline fabric`, the NodeFabric, the metrics and the checks use it. It depends on Hardware
// alone, so that a live machine, a recording and an imported topology give the same result.
//
// Pure; thread-safe as any value is. Nothing fails: if a distance is unknown, the result is the
// farther class.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// Nearest first, in NCCL's order. NODE is kept for people; NCCL counts it as PHB. PXN is a route
/// through another GPU's NIC that NCCL may choose. It is no distance between two devices, so no
/// matrix holds it.
enum class PathClass { kLoc, kNvl, kXgmi, kNvb, kC2c, kPix, kPxb, kP2c, kPxn, kPhb, kNode, kSys };

struct Path {
  PathClass kind = PathClass::kSys;
  int nvlinks = 0;  // for NVL and XGMI: number of bonded links
  bool operator==(const Path&) const = default;
};

/// "X" for the device itself, "NV18", "NVB", "PIX"…
std::string to_string(const Path& path);
/// A short explanation of the class.
std::string_view explain(PathClass kind);

/// Class of two PCI devices by their paths in the tree (PciFunction::path). `same_numa` is true if
/// both are known to be on one NUMA node.
PathClass pci_class(const std::vector<std::string>& a, const std::vector<std::string>& b,
                    bool same_numa);

/// A row or column of the matrix.
struct FabricDevice {
  // "GPU0", "mlx5_0", "eth0"; for an accelerator that no process can use, its PCI address
  std::string label;
  std::string model;    // a GPU's model; a NIC's link: "InfiniBand 400 Gb/s ACTIVE"
  std::string address;  // PCI address; empty for a device that is not on PCI
  std::optional<int> numa_node;
  bool usable = true;  // true for a GPU that its library shows and a NIC with a link
  bool rdma = false;
  std::vector<std::string> netdevs = {};  // of a NIC with RDMA
  std::string cpus = {};  // of its NUMA node, as the kernel lists them; empty: not known
  bool operator==(const FabricDevice&) const = default;
};

/// One NIC that serves GPUs, in bus order. The k-th rail of every node should connect to the k-th
/// leaf switch, so a NIC keeps its rail while its link is down. rails.cpp says which NICs count.
struct Rail {
  int index = 0;
  std::string nic;
  std::vector<std::string> gpus;  // the GPUs that have no nearer NIC
  bool operator==(const Rail&) const = default;
};

struct Fabric {
  std::vector<FabricDevice> gpus;
  std::vector<FabricDevice> nics;
  std::vector<std::vector<Path>> gpu_gpu;
  std::vector<std::vector<Path>> gpu_nic;
  std::vector<std::vector<Path>> nic_nic;
  // GPUs that are connected through the same NVSwitches
  std::vector<std::vector<std::string>> nvlink_groups;
  // the domain of all GPUs; empty if there is none or they differ
  std::string nvlink_domain;
  std::vector<Rail> rails;
  /// True if a hypervisor shows every device directly on a root bus or behind an emulated port. The
  /// PCI classes then describe the virtual machine and not the physical one.
  bool virtual_topology = false;
  std::size_t gpus_left_out = 0;  // beyond kMostFabricDevices
  std::size_t nics_left_out = 0;
  bool operator==(const Fabric&) const = default;
};

/// Larger than any real machine. A topology file or a broken sysfs may name more devices, and the
/// work grows with the cube of their number. What is left out is counted.
inline constexpr std::size_t kMostFabricDevices = 256;

Fabric relate(const Hardware& hardware);

/// The rails of a fabric whose devices and distances are known; for relate() alone.
std::vector<Rail> rails_of(const Hardware& hardware, const Fabric& fabric);

/// The rails whose NIC no other NIC is nearer to this GPU than.
std::vector<const Rail*> rails_near(const Fabric& fabric, const FabricDevice& gpu);

/// The matrix as a table for people, without legend; ends with a newline.
std::string matrix_text(const Fabric& fabric);
/// The legend of the classes in the table, and notes on what is unknown.
std::string legend_text(const Fabric& fabric);

}  // namespace paceline::agent
