// SPDX-License-Identifier: Apache-2.0
// What a node is made of, as the probes find it and NodeFabric reports it. Plain values; absent means not known, never 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::agent {

struct NumaNode {
  int id = 0;
  std::string cpus;  // the kernel's list, "0-15,32-47"; empty for a node that is memory only
  std::uint64_t memory_mib = 0;
  bool operator==(const NumaNode&) const = default;
};

struct Cpu {
  std::string model;
  int cores = 0;
  int threads = 0;
  std::vector<NumaNode> numa_nodes;
  bool operator==(const Cpu&) const = default;
};

struct Nic {
  std::string name;
  std::string driver;
  std::optional<std::int64_t> speed_mbps;  // absent while the link is down, and for devices that do not say
  std::int64_t mtu = 0;
  std::optional<int> numa_node;
  std::string pci_address;
  bool up = false;
  bool operator==(const Nic&) const = default;
};

struct Gpu {
  int index = 0;
  std::string model;
  std::uint64_t memory_mib = 0;
  std::optional<int> numa_node;
  std::string pci_address;
  bool operator==(const Gpu&) const = default;
};

/// How the GPUs were read. `problem` is empty when all is well, or when the node has none.
struct GpuReport {
  std::vector<Gpu> gpus;
  std::string problem;
  bool operator==(const GpuReport&) const = default;
};

struct Hardware {
  Cpu cpu;
  std::vector<Nic> nics;
  GpuReport gpu;
  bool operator==(const Hardware&) const = default;
};

}  // namespace paceline::agent
