// SPDX-License-Identifier: Apache-2.0
// Which NICs serve the GPUs of a node. The choice does not depend on which links are up: a cable
// that is pulled must not renumber the rails of the cluster. Four rules, in this order:
//
//   1. Of the kinds of ports with a link, those of the largest rate count. A kind is a board and
//      the number of the function on it. So a second port that no card of the node uses, and a
//      card for storage, are on no rail; a port of a used kind keeps its rail while it is down.
//   2. If these kinds speak different link layers, the one with more devices counts.
//   3. A NIC counts if it is the nearest of some GPU.
//   4. If some GPUs have more near NICs than every GPU has, the surplus without a link is spare.
#include <algorithm>
#include <map>
#include <set>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {
namespace {

using Devices = std::vector<const RdmaDevice*>;

/// A port whose state is not known may have a link.
bool may_carry(const RdmaPort& port) { return port.state == "ACTIVE" || port.state.empty(); }

bool may_carry(const RdmaDevice& device) {
  return device.ports.empty() || std::any_of(device.ports.begin(), device.ports.end(),
                                             [](const RdmaPort& port) { return may_carry(port); });
}

/// A port without a link reports its lowest rate, so it does not count.
std::int64_t rate_of(const RdmaDevice& device) {
  std::int64_t best = 0;
  for (const auto& port : device.ports) {
    if (may_carry(port)) best = std::max(best, port.rate_mbps.value_or(0));
  }
  return best;
}

/// The board and the number of the function on it.
std::string kind_of(const Hardware& hardware, const RdmaDevice& device) {
  std::string board = device.board_id;
  const auto function =
      std::find_if(hardware.pci.begin(), hardware.pci.end(),
                   [&](const PciFunction& entry) { return entry.address == device.pci_address; });
  if (board.empty() && function != hardware.pci.end())
    board = std::to_string(function->vendor) + ":" + std::to_string(function->device);
  const auto dot = device.pci_address.rfind('.');
  return board + (dot == std::string::npos ? "" : device.pci_address.substr(dot));
}

std::string link_layer(const RdmaDevice& device) {
  for (const auto& port : device.ports) {
    if (may_carry(port)) return port.link_layer;
  }
  return {};
}

/// Rules 1 and 2.
Devices used_kinds(const Hardware& hardware, const Devices& all) {
  std::int64_t fastest = 0;
  bool any_link = false;
  for (const auto* device : all) {
    fastest = std::max(fastest, rate_of(*device));
    any_link = any_link || may_carry(*device);
  }
  if (!any_link) return all;
  std::map<std::string, std::string> layers;  // kind -> its link layer
  for (const auto* device : all) {
    if (may_carry(*device) && rate_of(*device) == fastest)
      layers.emplace(kind_of(hardware, *device), link_layer(*device));
  }
  std::map<std::string, int> devices;  // link layer -> how many
  for (const auto* device : all) {
    const auto kind = layers.find(kind_of(hardware, *device));
    if (kind != layers.end()) ++devices[kind->second];
  }
  std::string layer;
  for (const auto& [name, count] : devices) {
    // Of equally many, InfiniBand: the Ethernet then carries the cluster's other traffic.
    if (layer.empty() || count > devices[layer] ||
        (count == devices[layer] && name == "InfiniBand"))
      layer = name;
  }
  Devices used;
  for (const auto* device : all) {
    const auto kind = layers.find(kind_of(hardware, *device));
    if (kind != layers.end() && kind->second == layer) used.push_back(device);
  }
  return used;
}

/// For each GPU the devices that no other is nearer than.
std::vector<Devices> nearest(const Fabric& fabric, const Devices& devices) {
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < fabric.nics.size(); ++i) columns.emplace(fabric.nics[i].label, i);
  std::vector<Devices> near(fabric.gpus.size());
  for (std::size_t gpu = 0; gpu < fabric.gpus.size(); ++gpu) {
    const auto kind = [&](const RdmaDevice* device) {
      return fabric.gpu_nic[gpu][columns.at(device->name)].kind;
    };
    auto best = PathClass::kSys;
    for (const auto* device : devices) best = std::min(best, kind(device));
    for (const auto* device : devices) {
      if (kind(device) == best) near[gpu].push_back(device);
    }
  }
  return near;
}

/// Rules 3 and 4.
Devices serving(const Fabric& fabric, Devices devices) {
  auto near = nearest(fabric, devices);
  std::erase_if(devices, [&](const RdmaDevice* device) {
    return std::none_of(near.begin(), near.end(), [&](const Devices& some) {
      return std::find(some.begin(), some.end(), device) != some.end();
    });
  });
  std::size_t least = devices.size();
  for (const auto& some : near) least = std::min(least, some.size());
  for (auto at = devices.size(); at-- > 0;) {
    const RdmaDevice* device = devices[at];
    if (may_carry(*device)) continue;
    const bool spare = std::all_of(near.begin(), near.end(), [&](const Devices& some) {
      return some.size() > least || std::find(some.begin(), some.end(), device) == some.end();
    });
    if (!spare) continue;
    for (auto& some : near) std::erase(some, device);
    devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return devices;
}

}  // namespace

std::vector<Rail> rails_of(const Hardware& hardware, const Fabric& fabric) {
  std::set<std::string_view> shown;
  for (const auto& nic : fabric.nics) shown.insert(nic.label);
  Devices devices;
  for (const auto& device : hardware.rdma) {
    if (shown.contains(device.name) && !device.pci_address.empty() && !device.manages_switches)
      devices.push_back(&device);
  }
  std::sort(devices.begin(), devices.end(), [](const auto* a, const auto* b) {
    return pci_address_before(a->pci_address, b->pci_address);
  });
  devices = used_kinds(hardware, devices);
  if (!fabric.gpus.empty()) devices = serving(fabric, std::move(devices));
  std::vector<Rail> rails;
  for (const auto* device : devices)
    rails.push_back({static_cast<int>(rails.size()), device->name, {}});
  const auto near = nearest(fabric, devices);
  for (std::size_t gpu = 0; gpu < fabric.gpus.size(); ++gpu) {
    for (const auto* device : near[gpu]) {
      const auto rail = std::find(devices.begin(), devices.end(), device) - devices.begin();
      rails[static_cast<std::size_t>(rail)].gpus.push_back(fabric.gpus[gpu].label);
    }
  }
  return rails;
}

std::vector<const Rail*> rails_near(const Fabric& fabric, const FabricDevice& gpu) {
  std::vector<const Rail*> near;
  for (const auto& rail : fabric.rails) {
    if (std::find(rail.gpus.begin(), rail.gpus.end(), gpu.label) != rail.gpus.end())
      near.push_back(&rail);
  }
  return near;
}

}  // namespace paceline::agent
