// SPDX-License-Identifier: Apache-2.0
#include "agent/report/node_fabric.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/hardware/nvlinks.hpp"
#include "agent/probe/hardware/rdma.hpp"
#include "common/base/printable.hpp"
#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxModel = 128;
constexpr std::size_t kMaxCpuList = 256;
constexpr std::size_t kMaxMessage = 1024;
// The CRD's bounds of the lists.
constexpr std::size_t kMaxNics = 64;
constexpr std::size_t kMaxNumaNodes = 64;
constexpr std::size_t kMaxGpus = 32;
constexpr std::size_t kMaxRow = 512;

/// Text from the kernel or a library in a form that the API accepts: bounded and printable ASCII,
/// since a device may return any bytes.
std::string clean(std::string_view text, std::size_t limit) {
  return printable(std::string(text.substr(0, limit)));
}

json cpu_json(const Cpu& cpu) {
  json nodes = json::array();
  for (const auto& node : cpu.numa_nodes) {
    nodes.push_back(
        {{"id", node.id}, {"cpus", clean(node.cpus, kMaxCpuList)}, {"memoryMiB", node.memory_mib}});
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
  json result{
      {"index", gpu.index}, {"model", clean(gpu.model, kMaxModel)}, {"memoryMiB", gpu.memory_mib}};
  if (gpu.numa_node) result["numaNode"] = *gpu.numa_node;
  if (!gpu.pci_address.empty()) result["pciAddress"] = clean(gpu.pci_address, 16);
  if (!gpu.resource.empty()) result["resource"] = gpu.resource;
  if (const auto active = active_nvlinks(gpu); active > 0) result["nvlinks"] = active;
  for (const auto& profile : gpu.mig_profiles) {
    auto& count = result["migDevices"][clean(mig_resource(profile), 64)];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  return result;
}

json rdma_json(const RdmaDevice& device, const Fabric& fabric) {
  json result{{"name", clean(device.name, 64)}, {"up", false}};
  if (device.numa_node) result["numaNode"] = *device.numa_node;
  if (!device.pci_address.empty()) result["pciAddress"] = clean(device.pci_address, 16);
  for (const auto& port : device.ports) {
    // A device with two ports carries traffic on the one that is up.
    if (port.state != "ACTIVE" && port.number != device.ports.front().number) continue;
    result["up"] = port.state == "ACTIVE";
    result["linkLayer"] = clean(link_layer_name(device, port), 16);
    if (port.state == "ACTIVE" && port.rate_mbps) result["rateMbps"] = *port.rate_mbps;
    if (port.state == "ACTIVE") break;
  }
  for (const auto& rail : fabric.rails) {
    if (rail.nic == device.name) result["rail"] = rail.index;
  }
  return result;
}

/// One row per GPU, as words: short and readable.
json distance_json(const Fabric& fabric) {
  const auto row = [](const std::vector<Path>& paths) {
    std::string text;
    for (const auto& path : paths) text += (text.empty() ? "" : " ") + to_string(path);
    return clean(text, kMaxRow);
  };
  json nics = json::array();
  for (const auto& nic : fabric.nics) nics.push_back(clean(nic.label, 64));
  json rows = json::array();
  for (std::size_t i = 0; i < fabric.gpus.size(); ++i) {
    rows.push_back({{"gpu", clean(fabric.gpus[i].label, 32)},
                    {"gpus", row(fabric.gpu_gpu[i])},
                    {"nics", row(fabric.gpu_nic[i])}});
  }
  return {{"nics", std::move(nics)}, {"rows", std::move(rows)}};
}

json condition(std::string_view type, bool good, std::string_view reason,
               std::string_view message) {
  return {{"type", type},
          {"status", good ? "True" : "False"},
          {"reason", reason},
          {"message", clean(message, kMaxMessage)}};
}

/// RDMA links that GPUs need, and NVLinks that differ from their neighbours.
std::string broken_links(const Hardware& hardware, const Fabric& fabric) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  for (std::size_t nic = 0; nic < fabric.nics.size(); ++nic) {
    // A port without a cable may be intended, unless a GPU depends on it.
    const bool near =
        std::any_of(fabric.gpu_nic.begin(), fabric.gpu_nic.end(),
                    [&](const auto& row) { return row[nic].kind <= PathClass::kP2c; });
    const bool on_rail =
        std::any_of(fabric.rails.begin(), fabric.rails.end(),
                    [&](const Rail& rail) { return rail.nic == fabric.nics[nic].label; });
    if (near && on_rail && fabric.nics[nic].rdma && !fabric.nics[nic].usable)
      add(fabric.nics[nic].label + " has no link");
  }
  for (const auto& gpu : hardware.gpu.gpus) {
    const int active = active_nvlinks(gpu);
    const auto expected = expected_nvlinks(hardware, gpu);
    if (expected && active < *expected)
      add("GPU" + std::to_string(gpu.index) + " has " + std::to_string(active) + " of " +
          std::to_string(*expected) + " NVLinks");
  }
  return text;
}

json condition(std::string_view type, const Summary& summary) {
  json result = condition(type, summary.good.value_or(false), summary.reason, summary.message);
  if (!summary.good) result["status"] = "Unknown";
  return result;
}

/// True if nothing is known of the GPUs, because their library does not answer here although their
/// driver is loaded: the agent may run without the library, or have lost the device files.
bool only_unread(const Hardware& hardware) {
  return !hardware.gpu.library_problem.empty() && hardware.gpu.driver_is_loaded &&
         std::ranges::none_of(hardware.pci, [](const PciFunction& function) {
           return !function.answers && accelerator_kind(function) != nullptr;
         });
}

json conditions_json(const Hardware& hardware, const Fabric& fabric,
                     const std::vector<Finding>& findings, std::size_t dropped) {
  json result = json::array();
  if (!hardware.gpu.problem.empty()) {
    result.push_back(condition("Complete", false, "GPUsNotReadable", hardware.gpu.problem));
  } else if (dropped > 0) {
    result.push_back(condition(
        "Complete", false, "TooManyDevices",
        std::to_string(dropped) +
            " devices are left out: the report is limited to 16 KiB, 64 NICs, 64 NUMA nodes and "
            "32 GPUs"));
  } else {
    result.push_back(condition("Complete", true, "AllRead", ""));
  }
  if (!fabric.gpus.empty()) {
    if (!hardware.gpu.problem.empty()) {
      result.push_back(condition("GpuHealthy", false, "GPUsNotReadable", hardware.gpu.problem));
      if (only_unread(hardware)) result.back()["status"] = "Unknown";
    } else if (const auto trouble = gpu_trouble(findings)) {
      result.push_back(condition("GpuHealthy", *trouble));
    } else {
      result.push_back(condition("GpuHealthy", true, "AllAnswer", ""));
    }
    if (const std::string broken = broken_links(hardware, fabric); !broken.empty()) {
      result.push_back(condition("FabricHealthy", false, "LinkDown",
                                 broken + "; see cable, switch and the GPU's NVLinks"));
    } else if (const auto trouble = fabric_trouble(findings)) {
      result.push_back(condition("FabricHealthy", *trouble));
    } else {
      result.push_back(condition("FabricHealthy", true, "AllLinksUp", ""));
    }
    if (!findings.empty())
      result.push_back(condition("GpuDirectReady", gpu_direct_ready(findings)));
  }
  return result;
}

/// The device to omit first: a NIC that is down, else the last one.
json::iterator least(json& devices) {
  const auto down = std::find_if(devices.begin(), devices.end(),
                                 [](const json& device) { return !device.value("up", true); });
  return down != devices.end() ? down : std::prev(devices.end());
}

/// Omits devices until the document fits: first the distances, then NICs, NUMA nodes and GPUs.
/// Returns how many were omitted.
std::size_t shrink(json& status) {
  // Leave room for the conditions that report the omission, and for the times.
  constexpr std::size_t kRoom = kMaxFabricBytes - 5 * kMaxMessage - 1024;
  std::size_t dropped = 0;
  if (status.contains("distance") &&
      (status["distance"]["rows"].size() > kMaxGpus || status.dump().size() > kRoom)) {
    status.erase("distance");
    ++dropped;
  }
  for (auto [devices, most] : {std::pair{&status["rdmaDevices"], kMaxNics},
                               {&status["nics"], kMaxNics},
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

json fabric_status(const Hardware& hardware, std::string_view agent_version,
                   const std::vector<Finding>& findings, const std::optional<Summary>& runtime) {
  const Fabric fabric = relate(hardware);
  json status{{"agentVersion", agent_version},
              {"cpu", cpu_json(hardware.cpu)},
              {"nics", json::array()},
              {"rdmaDevices", json::array()},
              {"gpus", json::array()}};
  for (const auto& nic : hardware.nics) status["nics"].push_back(nic_json(nic));
  for (const auto& device : hardware.rdma)
    status["rdmaDevices"].push_back(rdma_json(device, fabric));
  for (const auto& gpu : hardware.gpu.gpus) status["gpus"].push_back(gpu_json(gpu));
  if (!fabric.nvlink_domain.empty()) status["nvlinkDomain"] = clean(fabric.nvlink_domain, 64);
  if (!fabric.gpus.empty()) {
    status["distance"] = distance_json(fabric);
    status["virtualTopology"] = fabric.virtual_topology;
  }
  const std::size_t dropped = shrink(status);
  status["conditions"] = conditions_json(hardware, fabric, findings, dropped);
  if (runtime) status["conditions"].push_back(condition("RuntimeReady", *runtime));
  return status;
}

void add_links(json& status, const std::vector<Link>& links) {
  constexpr std::size_t kTimes = 1024;  // what stamp_times adds
  json entries = json::array();
  std::size_t size = status.dump().size() + kTimes;
  for (const Link& link : links) {
    json entry = link_status(link);
    size += entry.dump().size() + 1;
    if (size > kMaxFabricBytes) break;
    entries.push_back(std::move(entry));
  }
  if (!entries.empty()) status["links"] = std::move(entries);
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
    const auto type = entry.value("type", "");
    const auto state = entry.value("status", "");
    for (const auto& earlier : old) {
      if (!earlier.is_object() || earlier.value("type", "") != type ||
          earlier.value("status", "") != state)
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
  return {
      {"apiVersion", contract::kApiVersion},
      {"kind", "NodeFabric"},
      {"metadata",
       {{"name", node_name}, {"ownerReferences", json::array({node_owner(node_name, node_uid)})}}}};
}

}  // namespace paceline::agent
