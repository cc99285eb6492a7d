// SPDX-License-Identifier: Apache-2.0
// The network of this container, as far as NCCL's settings depend on it. read_machine fills it from
// the kernel's files; the choice of settings (nccl.hpp) knows nothing else of the machine.
//
// Plain values. Reading fails softly: a device that cannot be read is left out, and a field that
// cannot be read is empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace paceline::fabric {

/// One port of an RDMA device whose device file is in this container.
struct RdmaPort {
  std::string device;  // "mlx5_0"
  int number = 1;
  bool active = false;
  std::string layer;          // "InfiniBand" or "Ethernet"; of EFA "Unknown"
  std::int64_t gbps = 0;      // 0: not known
  std::string kind;           // the board, the function on it and the port
  std::string address;        // PCI address; empty for a device that is only software
  std::string physical = {};  // PCI address of its physical function, if it is a virtual one
  bool efa = false;
  bool manages_switches = false;     // a ConnectX through which NVSwitches are managed
  std::optional<int> ipv4_gid = {};  // index of the first RoCE v2 GID with an IPv4 address
  bool ipv6_gid = false;             // has a RoCE v2 GID with an IPv6 address that is routed
};

/// The network device that has this pod's address.
struct Interface {
  std::string name;
  std::string vendor = {};  // of the PCI device, "0x15b3"; empty if none is behind it
  std::int64_t mbps = 0;    // 0: not known
};

struct Machine {
  std::vector<RdmaPort> ports = {};
  Interface interface = {};
  int gpus = 0;  // device files of NVIDIA's GPUs
};

/// Reads `root`/sys and `root`/dev. `interface` may be empty.
Machine read_machine(const std::filesystem::path& root, const std::string& interface);

}  // namespace paceline::fabric
