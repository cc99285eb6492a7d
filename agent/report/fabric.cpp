// SPDX-License-Identifier: Apache-2.0
#include "agent/report/fabric.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxModel = 128;
constexpr std::size_t kMaxCpuList = 256;
constexpr std::size_t kMaxMessage = 1024;
// As the CRD bounds the lists.
constexpr std::size_t kMaxNics = 64;
constexpr std::size_t kMaxNumaNodes = 64;
constexpr std::size_t kMaxGpus = 32;

/// Text from the kernel or a library as the API takes it: bounded, and printable ASCII (a device may answer any bytes).
std::string clean(std::string_view text, std::size_t limit) {
  std::string result(text.substr(0, limit));
  std::replace_if(result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return result;
}

json cpu_json(const Cpu& cpu) {
  json nodes = json::array();
  for (const auto& node : cpu.numa_nodes) {
    nodes.push_back({{"id", node.id}, {"cpus", clean(node.cpus, kMaxCpuList)}, {"memoryMiB", node.memory_mib}});
  }
  return {{"model", clean(cpu.model, kMaxModel)},
          {"cores", cpu.cores},
          {"threads", cpu.threads},
          {"numaNodes", std::move(nodes)}};
}

json nic_json(const Nic& nic) {
  json result{{"name", clean(nic.name, 15)}, {"mtu", nic.mtu}, {"up", nic.up}};
  if (!nic.driver.empty()) result["driver"] = clean(nic.driver, 64);
  if (nic.speed_mbps) result["speedMbps"] = *nic.speed_mbps;
  if (nic.numa_node) result["numaNode"] = *nic.numa_node;
  if (!nic.pci_address.empty()) result["pciAddress"] = clean(nic.pci_address, 16);
  return result;
}

json gpu_json(const Gpu& gpu) {
  json result{{"index", gpu.index}, {"model", clean(gpu.model, kMaxModel)}, {"memoryMiB", gpu.memory_mib}};
  if (gpu.numa_node) result["numaNode"] = *gpu.numa_node;
  if (!gpu.pci_address.empty()) result["pciAddress"] = clean(gpu.pci_address, 16);
  return result;
}

json condition(bool complete, std::string_view reason, std::string_view message) {
  return {{"type", "Complete"},
          {"status", complete ? "True" : "False"},
          {"reason", reason},
          {"message", clean(message, kMaxMessage)}};
}

/// The device to leave out first: a NIC that is down, else the last one.
json::iterator least(json& devices) {
  const auto down =
      std::find_if(devices.begin(), devices.end(), [](const json& device) { return !device.value("up", true); });
  return down != devices.end() ? down : std::prev(devices.end());
}

/// Leaves out devices until the document fits: NICs before NUMA nodes before GPUs. Answers how many.
std::size_t shrink(json& status) {
  // The condition that will tell of it needs room too, and the times.
  constexpr std::size_t kRoom = kMaxFabricBytes - kMaxMessage - 512;
  std::size_t dropped = 0;
  for (auto [devices, most] : {std::pair{&status["nics"], kMaxNics},
                               {&status["cpu"]["numaNodes"], kMaxNumaNodes},
                               {&status["gpus"], kMaxGpus}}) {
    while (!devices->empty() && (devices->size() > most || status.dump().size() > kRoom)) {
      devices->erase(least(*devices));
      ++dropped;
    }
  }
  return dropped;
}

}  // namespace

json fabric_status(const Hardware& hardware, std::string_view agent_version) {
  json status{{"agentVersion", agent_version},
              {"cpu", cpu_json(hardware.cpu)},
              {"nics", json::array()},
              {"gpus", json::array()}};
  for (const auto& nic : hardware.nics) status["nics"].push_back(nic_json(nic));
  for (const auto& gpu : hardware.gpu.gpus) status["gpus"].push_back(gpu_json(gpu));

  const std::size_t dropped = shrink(status);
  json result = condition(true, "AllRead", "");
  if (!hardware.gpu.problem.empty()) {
    result = condition(false, "GPUsNotReadable", hardware.gpu.problem);
  } else if (dropped > 0) {
    result =
        condition(false, "TooManyDevices",
                  std::to_string(dropped) +
                      " devices are left out: the report is limited to 16 KiB, 64 NICs, 64 NUMA nodes and 32 GPUs");
  }
  status["conditions"] = json::array({std::move(result)});
  return status;
}

bool same_fabric(const json& a, const json& b) {
  const auto timeless = [](json status) {
    if (status.is_object()) status.erase("observedTime");
    if (status.contains("conditions") && status["conditions"].is_array()) {
      for (auto& entry : status["conditions"]) {
        if (entry.is_object()) entry.erase("lastTransitionTime");
      }
    }
    return status;
  };
  return timeless(a) == timeless(b);
}

void stamp_times(json& status, const json& before, WallTime now) {
  status["observedTime"] = format_time(now);
  const json old = before.is_object() ? before.value("conditions", json::array()) : json::array();
  for (auto& entry : status["conditions"]) {
    std::string since = format_time(now);
    for (const auto& earlier : old) {
      if (!earlier.is_object() || earlier.value("type", "") != entry["type"] ||
          earlier.value("status", "") != entry["status"])
        continue;
      since = earlier.value("lastTransitionTime", since);
    }
    entry["lastTransitionTime"] = since;
  }
}

json node_owner(std::string_view node_name, std::string_view node_uid) {
  return {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node_name}, {"uid", node_uid}};
}

json fabric_object(std::string_view node_name, std::string_view node_uid) {
  return {{"apiVersion", contract::kApiVersion},
          {"kind", "NodeFabric"},
          {"metadata", {{"name", node_name}, {"ownerReferences", json::array({node_owner(node_name, node_uid)})}}}};
}

}  // namespace paceline::agent
