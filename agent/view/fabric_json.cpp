// SPDX-License-Identifier: Apache-2.0
#include "agent/view/fabric_json.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

json device_view(const FabricDevice& device) {
  json view{{"name", device.label}, {"model", device.model}, {"usable", device.usable}};
  if (!device.address.empty()) view["pciAddress"] = device.address;
  if (device.numa_node) view["numaNode"] = *device.numa_node;
  if (!device.cpus.empty()) view["cpus"] = device.cpus;
  if (!device.netdevs.empty()) view["netdevs"] = device.netdevs;
  return view;
}

json rows_view(const std::vector<std::vector<Path>>& rows) {
  json view = json::array();
  for (const auto& row : rows) {
    json cells = json::array();
    for (const auto& path : row) cells.push_back(to_string(path));
    view.push_back(std::move(cells));
  }
  return view;
}

json rdma_view(const RdmaDevice& device) {
  json ports = json::array();
  for (const auto& port : device.ports) {
    json view{{"port", port.number},
              {"state", port.state},
              {"physState", port.phys_state},
              {"linkLayer", port.link_layer}};
    if (port.rate_mbps) view["rateMbps"] = *port.rate_mbps;
    view["gids"] = json::array();
    for (const auto& gid : port.gids)
      view["gids"].push_back(
          {{"index", gid.index}, {"gid", gid.value}, {"type", gid.type}, {"netdev", gid.netdev}});
    ports.push_back(std::move(view));
  }
  return {{"name", device.name},
          {"firmware", device.firmware},
          {"boardId", device.board_id},
          {"netdevs", device.netdevs},
          {"ports", std::move(ports)}};
}

}  // namespace

json fabric_json(const Hardware& hardware, const Fabric& fabric) {
  json view{{"gpus", json::array()},
            {"nics", json::array()},
            {"gpuToGpu", rows_view(fabric.gpu_gpu)},
            {"gpuToNic", rows_view(fabric.gpu_nic)},
            {"nicToNic", rows_view(fabric.nic_nic)},
            {"nvlinkGroups", fabric.nvlink_groups},
            {"rails", json::array()},
            {"rdma", json::array()},
            {"virtualTopology", fabric.virtual_topology}};
  for (std::size_t i = 0; i < fabric.gpus.size(); ++i) {
    json gpu = device_view(fabric.gpus[i]);
    if (i < hardware.gpu.gpus.size()) {
      const auto& known = hardware.gpu.gpus[i];
      gpu["resource"] = known.resource;
      gpu["memoryMiB"] = known.memory_mib;
      if (known.bar1_mib) gpu["bar1MiB"] = *known.bar1_mib;
      for (const Rail* rail : rails_near(fabric, fabric.gpus[i]))
        gpu["nearestNics"].push_back(rail->nic);
      if (!known.mig_profiles.empty()) gpu["migProfiles"] = known.mig_profiles;
    }
    view["gpus"].push_back(std::move(gpu));
  }
  for (const auto& nic : fabric.nics) view["nics"].push_back(device_view(nic));
  for (const auto& rail : fabric.rails)
    view["rails"].push_back({{"index", rail.index}, {"nic", rail.nic}, {"gpus", rail.gpus}});
  for (const auto& device : hardware.rdma) view["rdma"].push_back(rdma_view(device));
  // A topology file tells no states.
  for (const char* devices : {"gpus", "nics"}) {
    for (auto& device : view[devices]) {
      if (hardware.from_topology_file) device.erase("usable");
    }
  }
  if (!fabric.nvlink_domain.empty()) view["nvlinkDomain"] = fabric.nvlink_domain;
  if (!hardware.gpu.problem.empty()) view["problem"] = hardware.gpu.problem;
  return view;
}

}  // namespace paceline::agent
