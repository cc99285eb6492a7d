// SPDX-License-Identifier: Apache-2.0
// The hardware of a node, as the probes find it and NodeFabric reports it. All parts of the agent
// read these values. Plain values; an absent field is unknown, never 0. Distances between devices
// are derived from them: see fabric/fabric.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::agent {

struct NumaNode {
  int id = 0;
  std::string cpus;  // the kernel's list, "0-15,32-47"; empty for a memory-only node
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

/// One PCI function, with its place in the tree.
struct PciFunction {
  std::string address;  // "0000:3b:00.0"
  // from the host bridge to the function: pci0000:3a, 0000:3a:01.0, 0000:3b:00.0
  std::vector<std::string> path;
  std::uint32_t vendor = 0;
  std::uint32_t device = 0;
  std::uint32_t class_code = 0;  // 24 bits: base class, subclass, interface
  std::optional<int> numa_node;
  std::string link_speed = {};  // the current one, as the kernel writes it: "32.0 GT/s PCIe"
  std::string link_width = {};
  bool answers = true;  // false if its configuration space reads as all ones: it fell off the bus
  std::string driver = {};  // read for network functions and accelerators; empty: none is bound
  bool virtual_function = false;  // read for network functions and accelerators
  bool operator==(const PciFunction&) const = default;
};

struct Nic {
  std::string name;
  std::string driver;
  // absent while the link is down, and for devices without a speed
  std::optional<std::int64_t> speed_mbps;
  std::int64_t mtu = 0;
  std::optional<int> numa_node;
  std::string pci_address;
  bool up = false;
  bool operator==(const Nic&) const = default;
};

struct Gid {
  int index = 0;
  std::string value;   // "fe80:0000:…"; a GID of zeros is an empty entry and is left out
  std::string type;    // "RoCE v2", "IB/RoCE v1"
  std::string netdev;  // RoCE only
  bool operator==(const Gid&) const = default;
};

struct RdmaPort {
  int number = 0;
  std::string state;       // "ACTIVE"
  std::string phys_state;  // "LinkUp"
  std::string link_layer;  // "InfiniBand" or "Ethernet"
  std::optional<std::int64_t> rate_mbps;
  std::vector<Gid> gids;
  bool operator==(const RdmaPort&) const = default;
};

struct RdmaDevice {
  std::string name;
  std::string firmware;
  std::string board_id;
  std::string pci_address;  // empty for soft RoCE
  std::optional<int> numa_node;
  std::vector<std::string> netdevs;
  std::vector<RdmaPort> ports;
  std::string driver = {};  // "mlx5_core", "efa"; empty for soft RoCE
  // The GPU memory that EFA's driver registers by itself, as it names it: "NVIDIA".
  std::string own_peer_memory = {};
  // A ConnectX on a board of B200 through which its NVSwitches are managed. It moves no data.
  bool manages_switches = false;
  std::optional<bool> nccl_gdr = {};  // gdr in a topology file: NCCL can use GPUDirect RDMA
  bool operator==(const RdmaDevice&) const = default;
};

enum class NvLinkRemote { kUnknown, kGpu, kSwitch };

/// NVLink of NVIDIA, or xGMI of AMD: both lead from GPU to GPU past the PCI bus.
enum class LinkKind { kNvLink, kXgmi };

struct NvLink {
  int link = 0;
  bool active = false;
  NvLinkRemote remote = NvLinkRemote::kUnknown;
  // empty if the other end is not shown (a VM, a switch in another tray)
  std::string remote_address;
  // replays, recoveries and CRC errors since the driver was loaded
  std::optional<std::uint64_t> errors = {};
  LinkKind kind = LinkKind::kNvLink;
  bool operator==(const NvLink&) const = default;
};

/// What a GPU tells of its memory and of what it needs. Absent: the driver or the model does not
/// tell.
struct GpuCondition {
  std::optional<std::uint64_t> uncorrected_errors = {};    // ECC, since the driver was loaded
  std::optional<std::uint64_t> remapped_uncorrected = {};  // rows replaced after such errors
  std::optional<bool> remapping_pending = {};              // takes effect at the next reset
  std::optional<bool> remapping_failed = {};               // no spare row was left
  std::optional<int> recovery_action = {};  // 0 none, 1 reset, 2 reboot, 3 drain, 4 drain and reset
  bool operator==(const GpuCondition&) const = default;
};

/// A GPU's registration with the NVLink fabric, in NVML's numbers.
struct NvLinkFabric {
  int state = 0;                  // 0 not supported, 1 not started, 2 in progress, 3 completed
  int status = 0;                 // result of the registration: 0 is success
  std::uint32_t health_mask = 0;  // pairs of bits; 1 in a pair means that the problem exists
  bool operator==(const NvLinkFabric&) const = default;
};

/// An accelerator of any vendor.
struct Gpu {
  int index = 0;
  std::string model;
  std::uint64_t memory_mib = 0;
  std::optional<int> numa_node;
  std::string pci_address;
  std::string resource = {};                   // its resource name in Kubernetes: "nvidia.com/gpu"
  std::optional<int> compute_capability = {};  // 90 for 9.0
  std::optional<std::uint64_t> bar1_mib = {};  // window through which a NIC can access its memory
  bool c2c = false;                            // connected to its CPU by NVLink-C2C instead of PCIe
  std::vector<NvLink> nvlinks = {};
  // "clusterUuid/cliqueId"; empty if the links end inside this node
  std::string nvlink_domain = {};
  std::optional<NvLinkFabric> nvlink_fabric = {};
  bool mig = false;                            // its MIG mode is on, with or without MIG devices
  std::vector<std::string> mig_profiles = {};  // one entry per MIG device: "1g.10gb"
  // "GPU-5d1b…" and "MIG-ab12…", as device plugins name the devices that they give to a pod. They
  // identify the machine, so they are never published and never recorded.
  std::string uuid = {};
  std::vector<std::string> mig_uuids = {};
  GpuCondition condition = {};
  std::optional<bool> nccl_gdr = {};  // gdr in a topology file: NCCL can use GPUDirect RDMA
  // A topology file shows only its PCI class, so its index and model are not NCCL's.
  bool class_only = false;
  bool operator==(const Gpu&) const = default;
};

/// The result of probing accelerators. `problem` is empty if all is well or the node has none.
struct GpuReport {
  std::vector<Gpu> gpus;
  std::string problem;
  /// On the PCI bus, but not shown by the vendor's library. They have no index and no process can
  /// use them, but they have a place on the bus.
  std::vector<Gpu> unreadable = {};
  std::string library_problem = {};  // why NVML does not answer, on a node with NVIDIA GPUs
  // the kernel has NVIDIA's driver all the same, so that others may well use the GPUs
  bool driver_is_loaded = false;
  bool operator==(const GpuReport&) const = default;
};

struct Hardware {
  Cpu cpu;
  std::vector<Nic> nics;
  GpuReport gpu;
  std::vector<PciFunction> pci = {};
  std::vector<RdmaDevice> rdma = {};
  // Read from a topology file alone: it tells places, and no state of a device.
  bool from_topology_file = false;
  bool operator==(const Hardware&) const = default;
};

}  // namespace paceline::agent
