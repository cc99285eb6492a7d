// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "agent/probe/formats/nccl_xml.hpp"

namespace paceline::agent {
namespace {

using Places = std::map<std::string, const PciFunction*>;

template <typename Devices>
void take_numa_nodes(const Places& places, Devices& devices) {
  for (auto& device : devices) {
    const auto place = places.find(device.pci_address);
    if (place != places.end()) device.numa_node = place->second->numa_node;
  }
}

}  // namespace

std::size_t place_by(const Hardware& file, Hardware& machine) {
  Places places;
  for (const auto& function : file.pci) places.emplace(function.address, &function);
  std::size_t named = 0;
  for (auto& function : machine.pci) {
    const auto place = places.find(function.address);
    if (place == places.end()) continue;
    ++named;
    function.path = place->second->path;
    function.numa_node = place->second->numa_node;
  }
  take_numa_nodes(places, machine.gpu.gpus);
  take_numa_nodes(places, machine.gpu.unreadable);
  take_numa_nodes(places, machine.rdma);
  take_numa_nodes(places, machine.nics);
  // A virtual machine may show fewer NUMA nodes than the file knows.
  std::set<int> known;
  for (const auto& node : machine.cpu.numa_nodes) known.insert(node.id);
  for (const auto& node : file.cpu.numa_nodes) {
    if (known.insert(node.id).second) machine.cpu.numa_nodes.push_back(node);
  }
  return named;
}

}  // namespace paceline::agent
