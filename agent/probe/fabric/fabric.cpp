// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/fabric/fabric.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "agent/probe/hardware/hypervisor.hpp"
#include "agent/probe/hardware/rdma.hpp"

namespace paceline::agent {
namespace {

/// Functions by address.
class Places {
 public:
  explicit Places(const std::vector<PciFunction>& pci) {
    for (const auto& function : pci) by_address_.emplace(function.address, &function);
  }
  const PciFunction* find(const std::string& address) const {
    const auto found = by_address_.find(address);
    return found == by_address_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, const PciFunction*> by_address_;
};

/// NUMA nodes that have CPUs. A memory-only node (a GPU's own memory) is no place for a device. A
/// topology file may name nodes without their CPUs.
std::size_t cpu_nodes(const Cpu& cpu) {
  const auto nodes = std::count_if(cpu.numa_nodes.begin(), cpu.numa_nodes.end(),
                                   [](const auto& node) { return !node.cpus.empty(); });
  return nodes > 0 ? static_cast<std::size_t>(nodes) : cpu.numa_nodes.size();
}

bool same_numa(const Hardware& hardware, const std::optional<int>& a, const std::optional<int>& b) {
  // With a single node, a missing node number from firmware does no harm.
  if (cpu_nodes(hardware.cpu) <= 1) return true;
  return a && b && *a == *b;
}

PathClass bus_class(const Hardware& hardware, const Places& places, const FabricDevice& a,
                    const FabricDevice& b) {
  const PciFunction* first = places.find(a.address);
  const PciFunction* second = places.find(b.address);
  // The result for a place that is not known is the farther class.
  if (first == nullptr || second == nullptr) return PathClass::kSys;
  return pci_class(first->path, second->path, same_numa(hardware, a.numa_node, b.numa_node));
}

/// Bonded NVLinks between GPUs: direct ones, and those through switches.
class NvLinks {
 public:
  explicit NvLinks(const std::vector<Gpu>& gpus)
      : direct_(gpus.size(), std::vector<int>(gpus.size(), 0)), group_(gpus.size()) {
    std::iota(group_.begin(), group_.end(), 0U);
    std::map<std::string, std::size_t> by_address;
    for (std::size_t i = 0; i < gpus.size(); ++i) by_address.emplace(gpus[i].pci_address, i);
    std::map<std::string, std::size_t> first_on;  // switch -> a GPU on it
    to_switch_.resize(gpus.size());
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      for (const auto& link : gpus[i].nvlinks) {
        if (!link.active) continue;
        const auto peer = by_address.find(link.remote_address);
        if (link.remote != NvLinkRemote::kSwitch && peer != by_address.end()) {
          if (peer->second != i) ++direct_[i][peer->second];
          continue;
        }
        // A link leads to a GPU of this node or to a switch. If the far end is not shown, it is a
        // switch in another tray or outside the virtual machine, in the same domain.
        if (link.remote == NvLinkRemote::kGpu) continue;
        ++to_switch_[i];
        const auto [known, first] = first_on.emplace(switch_key(gpus[i], link), i);
        if (!first) merge(i, known->second);
      }
    }
  }

  int between(std::size_t a, std::size_t b) const {
    if (direct_[a][b] > 0 && direct_[b][a] > 0) return std::min(direct_[a][b], direct_[b][a]);
    return group(a) == group(b) ? std::min(to_switch_[a], to_switch_[b]) : 0;
  }
  bool switched(std::size_t gpu) const { return to_switch_[gpu] > 0; }
  std::size_t group(std::size_t gpu) const { return group_[gpu]; }

 private:
  static std::string switch_key(const Gpu& gpu, const NvLink& link) {
    return link.remote_address.empty() ? "hidden " + gpu.nvlink_domain : link.remote_address;
  }
  void merge(std::size_t a, std::size_t b) {
    const std::size_t from = group_[a];
    const std::size_t to = group_[b];
    std::replace(group_.begin(), group_.end(), from, to);
  }

  std::vector<std::vector<int>> direct_;
  std::vector<int> to_switch_;
  std::vector<std::size_t> group_;
};

bool is_xgmi(const Gpu& gpu) {
  return std::any_of(gpu.nvlinks.begin(), gpu.nvlinks.end(),
                     [](const NvLink& link) { return link.kind == LinkKind::kXgmi; });
}

Path gpu_path(const Hardware& hardware, const Places& places, const Fabric& fabric,
              const std::vector<Gpu>& gpus, const NvLinks& links, std::size_t a, std::size_t b) {
  if (a == b) return {PathClass::kLoc, 0};
  if (const int bonded = links.between(a, b); bonded > 0)
    return {is_xgmi(gpus[a]) ? PathClass::kXgmi : PathClass::kNvl, bonded};
  for (std::size_t via = 0; via < gpus.size(); ++via) {
    if (links.between(a, via) > 0 && links.between(via, b) > 0) return {PathClass::kNvb, 0};
  }
  const PathClass bus = bus_class(hardware, places, fabric.gpus[a], fabric.gpus[b]);
  if (gpus[a].c2c && gpus[b].c2c && (bus == PathClass::kPhb || bus == PathClass::kNode))
    return {PathClass::kC2c, 0};
  return {bus, 0};
}

std::string gbps(std::int64_t mbps) {
  return std::to_string(mbps / 1000) +
         (mbps % 1000 == 0 ? "" : "." + std::to_string(mbps % 1000 / 100)) + " Gb/s";
}

FabricDevice rdma_column(const RdmaDevice& device) {
  FabricDevice column{device.name, "",   device.pci_address, device.numa_node,
                      false,       true, device.netdevs};
  for (const auto& port : device.ports) {
    if (!column.model.empty()) column.model += ", ";
    column.model += link_layer_name(device, port) +
                    (port.rate_mbps ? " " + gbps(*port.rate_mbps) : "") + " " +
                    (port.state.empty() ? "state not known" : port.state);
    column.usable = column.usable || port.state == "ACTIVE";
  }
  if (device.ports.empty()) column.model = "NIC, known by its PCI class";
  if (device.manages_switches) column.model += ", manages NVSwitches";
  return column;
}

/// RDMA devices, and network devices without RDMA.
std::vector<FabricDevice> nic_columns(const Hardware& hardware) {
  std::vector<FabricDevice> columns;
  std::set<std::string> seen;
  for (const auto& device : hardware.rdma) {
    if (device.pci_address.empty()) continue;  // soft RoCE is where its network device is
    seen.insert(device.pci_address);
    columns.push_back(rdma_column(device));
  }
  for (const auto& nic : hardware.nics) {
    if (nic.pci_address.empty() || !seen.insert(nic.pci_address).second) continue;
    columns.push_back({nic.name,
                       "Ethernet" + (nic.speed_mbps ? " " + gbps(*nic.speed_mbps) : "") +
                           (hardware.from_topology_file ? ", state not known"
                            : nic.up                    ? " up"
                                                        : " down"),
                       nic.pci_address, nic.numa_node, nic.up, false});
  }
  return columns;
}

/// Returns how many devices beyond the limit it removed.
template <typename Device>
std::size_t cut(std::vector<Device>& devices) {
  if (devices.size() <= kMostFabricDevices) return 0;
  const std::size_t more = devices.size() - kMostFabricDevices;
  devices.erase(devices.begin() + kMostFabricDevices, devices.end());
  return more;
}

void note_cpus(const Cpu& cpu, std::vector<FabricDevice>& devices) {
  for (auto& device : devices) {
    for (const auto& node : cpu.numa_nodes) {
      if (node.id == device.numa_node) device.cpus = node.cpus;
    }
  }
}

bool flat(const std::vector<PciFunction>& pci, const Places& places, const Fabric& fabric) {
  bool any = false;
  for (const auto* devices : {&fabric.gpus, &fabric.nics}) {
    for (const auto& device : *devices) {
      const PciFunction* function = places.find(device.address);
      if (function == nullptr) continue;
      if (!placed_by_hypervisor(pci, *function)) return false;
      any = true;
    }
  }
  return any;
}

}  // namespace

PathClass pci_class(const std::vector<std::string>& a, const std::vector<std::string>& b,
                    bool same_numa) {
  const auto common = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  if (common == 0) return same_numa ? PathClass::kNode : PathClass::kSys;
  // two ports of one function
  if (common == a.size() && common == b.size()) return PathClass::kPix;
  if (common == 1) return PathClass::kPhb;
  const std::size_t differ = std::max(a.size(), b.size()) - common;
  return differ <= 2 ? PathClass::kPix : PathClass::kPxb;
}

Fabric relate(const Hardware& hardware) {
  Fabric fabric;
  std::vector<Gpu> gpus = hardware.gpu.gpus;
  gpus.insert(gpus.end(), hardware.gpu.unreadable.begin(), hardware.gpu.unreadable.end());
  fabric.gpus_left_out = cut(gpus);
  const Places places(hardware.pci);
  std::map<int, int> parts;  // GPU index -> rows so far; a partitioned GPU has several
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const bool usable = i < hardware.gpu.gpus.size();
    const auto& gpu = gpus[i];
    std::string label = usable ? "GPU" + std::to_string(gpu.index) : gpu.pci_address;
    if (const int part = usable ? parts[gpu.index]++ : 0; part > 0)
      label += "." + std::to_string(part);
    fabric.gpus.push_back(
        {std::move(label), gpu.model, gpu.pci_address, gpu.numa_node, usable, false});
  }
  fabric.nics = nic_columns(hardware);
  fabric.nics_left_out = cut(fabric.nics);
  note_cpus(hardware.cpu, fabric.gpus);
  note_cpus(hardware.cpu, fabric.nics);

  const NvLinks links(gpus);
  std::map<std::size_t, std::vector<std::string>> groups;
  std::set<std::string> domains;
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    auto& row = fabric.gpu_gpu.emplace_back();
    for (std::size_t b = 0; b < gpus.size(); ++b)
      row.push_back(gpu_path(hardware, places, fabric, gpus, links, a, b));
    auto& to_nics = fabric.gpu_nic.emplace_back();
    for (const auto& nic : fabric.nics) {
      PathClass kind = bus_class(hardware, places, fabric.gpus[a], nic);
      if (gpus[a].c2c && (kind == PathClass::kPhb || kind == PathClass::kNode))
        kind = PathClass::kP2c;
      to_nics.push_back({kind, 0});
    }
    if (links.switched(a)) groups[links.group(a)].push_back(fabric.gpus[a].label);
    domains.insert(gpus[a].nvlink_domain);
  }
  for (const auto& a : fabric.nics) {
    auto& row = fabric.nic_nic.emplace_back();
    for (const auto& b : fabric.nics)
      row.push_back({&a == &b ? PathClass::kLoc : bus_class(hardware, places, a, b), 0});
  }
  for (auto& [id, members] : groups) fabric.nvlink_groups.push_back(std::move(members));
  std::sort(fabric.nvlink_groups.begin(), fabric.nvlink_groups.end());
  if (domains.size() == 1) fabric.nvlink_domain = *domains.begin();
  fabric.rails = rails_of(hardware, fabric);
  fabric.virtual_topology = flat(hardware.pci, places, fabric);
  return fabric;
}

}  // namespace paceline::agent
