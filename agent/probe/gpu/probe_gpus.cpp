// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/gpu/probe_gpus.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "agent/probe/hardware/accelerator.hpp"
#include "common/contract/accelerators.hpp"

namespace paceline::agent {
namespace {

Gpu from_bus(const PciFunction& function, const AcceleratorKind& kind) {
  constexpr std::string_view kHex = "0123456789abcdef";
  Gpu gpu;
  gpu.model = std::string(kind.vendor) + " accelerator ";
  for (unsigned int shift = 16; shift > 0; shift -= 4)
    gpu.model += kHex[(function.device >> (shift - 4)) & 15U];
  gpu.numa_node = function.numa_node;
  gpu.pci_address = function.address;
  gpu.resource = kind.resource;
  return gpu;
}

std::string join_addresses(const std::vector<Gpu>& gpus) {
  std::string text;
  for (const auto& gpu : gpus) text += (text.empty() ? "" : ", ") + gpu.pci_address;
  return text;
}

}  // namespace

GpuReport probe_gpus(const std::vector<PciFunction>& pci, GpuLibrary& library) {
  GpuReport report;
  const auto devices = library.devices();
  if (devices) report.gpus = *devices;
  for (auto& gpu : report.gpus) {
    gpu.resource = contract::kNvidiaGpu;
    const auto function = std::find_if(pci.begin(), pci.end(),
                                       [&](const auto& f) { return f.address == gpu.pci_address; });
    if (function != pci.end()) gpu.numa_node = function->numa_node;
  }
  std::vector<Gpu> others;
  std::string gone;
  for (const auto& function : pci) {
    const AcceleratorKind* kind = accelerator_kind(function);
    const bool shown = std::any_of(report.gpus.begin(), report.gpus.end(), [&](const Gpu& gpu) {
      return gpu.pci_address == function.address;
    });
    if (kind == nullptr || (!shown && is_kept_for_guests(function))) continue;
    if (!function.answers) gone += (gone.empty() ? "" : ", ") + function.address;
    if (function.vendor != kNvidia) {
      others.push_back(from_bus(function, *kind));
      continue;
    }
    if (!shown) report.unreadable.push_back(from_bus(function, *kind));
  }
  // Other vendors' tools also count from 0, in bus order.
  for (auto& gpu : others) {
    gpu.index = static_cast<int>(report.gpus.size());
    report.gpus.push_back(std::move(gpu));
  }
  if (!devices && !report.unreadable.empty()) report.library_problem = devices.error().message;
  if (!gone.empty()) {
    report.problem = "fell off the PCI bus (its configuration space reads as ones): " + gone +
                     "; see the kernel log for Xid 79 and AER errors, reset or replace the GPU";
  } else if (!report.unreadable.empty() && !devices) {
    // Most nodes have neither GPUs nor a library: that is no problem.
    report.problem =
        std::to_string(report.unreadable.size()) +
        " NVIDIA GPU(s) on the PCI bus, but NVML does not answer (" + devices.error().message +
        "): give the agent the runtime class `nvidia` with NVIDIA_DRIVER_CAPABILITIES=utility";
  } else if (!report.unreadable.empty()) {
    report.problem = "on the PCI bus, but not shown by NVML: " + join_addresses(report.unreadable) +
                     "; see the kernel log for Xid errors, reset or replace the GPU";
  }
  return report;
}

}  // namespace paceline::agent
