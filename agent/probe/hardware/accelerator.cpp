// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/hardware/accelerator.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include "common/contract/accelerators.hpp"

namespace paceline::agent {
namespace {

// Base class and subclass.
constexpr std::uint32_t kVga = 0x0300;
constexpr std::uint32_t k3d = 0x0302;
constexpr std::uint32_t kOtherDisplay = 0x0380;
constexpr std::uint32_t kProcessing = 0x1200;

struct Row {
  std::uint32_t vendor;
  std::vector<std::uint32_t> classes;  // empty: any class
  std::vector<std::uint32_t> devices;  // empty: any device of these classes
  AcceleratorKind kind;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {kNvidia, {kVga, k3d}, {}, {"NVIDIA", contract::kNvidiaGpu}},
      {0x1002, {kVga, k3d, kOtherDisplay, kProcessing}, {}, {"AMD", contract::kAmdGpu}},
      // Class VGA is left out: it is the display of a desktop processor.
      {0x8086, {kOtherDisplay, kProcessing}, {}, {"Intel", contract::kIntelGpu}},
      {0x1da3, {kProcessing}, {}, {"Habana", contract::kGaudi}},
      {0x19e5, {kProcessing}, {}, {"Huawei", contract::kAscend}},
      // Both clouds use the same vendor number for NICs and disks, so the device number decides.
      {0x1d0f,
       {},
       {0x7064, 0x7065, 0x7066, 0x7067, 0x7164, 0x7264, 0x7364},
       {"AWS", contract::kNeuron}},
      {0x1ae0,
       {},
       {0x0027, 0x0056, 0x005e, 0x0062, 0x0063, 0x006f, 0x0076},
       {"Google", contract::kTpu}},
  };
  return table;
}

bool allows(const std::vector<std::uint32_t>& list, std::uint32_t value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

const AcceleratorKind* accelerator_kind(const PciFunction& function) {
  for (const auto& row : rows()) {
    if (row.vendor == function.vendor && allows(row.classes, function.class_code >> 8U) &&
        allows(row.devices, function.device)) {
      return &row.kind;
    }
  }
  return nullptr;
}

bool is_kept_for_guests(const PciFunction& function) {
  // vfio-pci, nvgrace_gpu_vfio_pci. Intel's virtual functions serve containers too.
  return function.driver.find("vfio") != std::string::npos ||
         (function.virtual_function && function.vendor == kNvidia);
}

bool is_nvidia(const PciFunction& function) {
  return function.vendor == kNvidia || (function.vendor == 0 && function.class_code >> 8U == k3d);
}

std::string mig_resource(std::string_view profile) {
  std::string name = std::string(contract::kNvidiaMigPrefix) + std::string(profile);
  std::replace(name.begin(), name.end(), '+', '.');
  return name;
}

bool is_accelerator_resource(std::string_view name) {
  return contract::is_accelerator_resource(name);
}

const Gpu* gpu_of_device(std::string_view resource, std::string_view id,
                         const std::vector<Gpu>& gpus) {
  if (const auto share = id.find("::"); share != std::string_view::npos) id = id.substr(0, share);
  if (resource.ends_with(".shared")) resource.remove_suffix(std::string_view(".shared").size());
  const bool part = resource.starts_with(contract::kNvidiaMigPrefix);
  const std::string_view whole = part ? contract::kNvidiaGpu : resource;
  const std::string address = sysfs_address(id);
  const auto found = std::ranges::find_if(gpus, [&](const Gpu& gpu) {
    if (gpu.resource != whole || id.empty()) return false;
    if (std::ranges::find(gpu.mig_uuids, id) != gpu.mig_uuids.end()) return true;
    const bool counted = whole == contract::kNvidiaGpu;  // other vendors count differently
    return !part && (gpu.uuid == id || gpu.pci_address == address ||
                     (counted && std::to_string(gpu.index) == id));
  });
  return found == gpus.end() ? nullptr : &*found;
}

bool is_pci_bridge(const PciFunction& function) { return function.class_code >> 8U == 0x0604; }

std::string sysfs_address(std::string_view nvml_bus_id) {
  std::string address(nvml_bus_id);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  // NVML pads the domain to eight digits, sysfs to four.
  while (address.size() > 12 && address.starts_with('0')) address.erase(0, 1);
  return address;
}

}  // namespace paceline::agent
