// SPDX-License-Identifier: Apache-2.0
// How the devices of a node lie to each other: distance classes, NVLink groups and domain, rails.
// Derived from Hardware alone, so that a live machine, a recording and an imported topology give
// the same answers. Pure; thread-safe as any value is; nothing fails: what cannot be told is the
// farther class, never the nearer one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// Nearest first, in NCCL's order. NODE is kept for people; NCCL counts it as PHB. PXN is a route
/// (through another GPU's NIC) that NCCL may choose, not how two devices lie: no matrix holds it.
enum class PathClass { kLoc, kNvl, kNvb, kC2c, kPix, kPxb, kP2c, kPxn, kPhb, kNode, kSys };

struct Path {
  PathClass kind = PathClass::kSys;
  int nvlinks = 0;  // of NVL: how many links are bonded
  bool operator==(const Path&) const = default;
};

/// "X" for a device itself, "NV18", "NVB", "PIX"…
std::string to_string(const Path& path);
/// What the class means, in a few words.
std::string_view explain(PathClass kind);

/// Class of two PCI devices by their places in the tree (PciFunction::path). `same_numa`: known to
/// be on one NUMA node.
PathClass pci_class(const std::vector<std::string>& a, const std::vector<std::string>& b,
                    bool same_numa);

/// A row or column of the matrix.
struct FabricDevice {
  // "GPU0", "mlx5_0", "eth0"; the PCI address of an accelerator that nobody can use
  std::string label;
  std::string model;    // of a GPU; the link of a NIC: "InfiniBand 400 Gb/s ACTIVE"
  std::string address;  // on PCI; may be empty
  std::optional<int> numa_node;
  bool usable = true;  // a GPU that is shown, a NIC with a link
  bool rdma = false;
  bool operator==(const FabricDevice&) const = default;
};

/// One NIC of the node's fastest RDMA kind, in the order of the bus: the k-th of every node is
/// meant for the k-th leaf switch.
struct Rail {
  int index = 0;
  std::string nic;
  std::vector<std::string> gpus;  // those that have no nearer NIC
  bool operator==(const Rail&) const = default;
};

struct Fabric {
  std::vector<FabricDevice> gpus;
  std::vector<FabricDevice> nics;
  std::vector<std::vector<Path>> gpu_gpu;
  std::vector<std::vector<Path>> gpu_nic;
  // GPUs that reach each other through the same NVSwitches
  std::vector<std::vector<std::string>> nvlink_groups;
  // of all GPUs; empty: none, or they disagree
  std::string nvlink_domain;
  std::vector<Rail> rails;
  /// True when a hypervisor shows every device directly on a root bus: the PCI classes then
  /// describe the virtual machine, not the machine.
  bool virtual_topology = false;
  bool operator==(const Fabric&) const = default;
};

/// At most 256 accelerators and 256 NICs.
Fabric relate(const Hardware& hardware);

/// The matrix as a table for people, without a legend. Ends with a newline.
std::string matrix_text(const Fabric& fabric);
/// The legend of the classes that the table holds, and the notes on what it does not know.
std::string legend_text(const Fabric& fabric);

}  // namespace paceline::agent
