// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "agent/probe/probe.hpp"

namespace paceline::agent {
namespace {

/// PCI functions of NVIDIA that compute or display: class 0x0300 (VGA) or 0x0302 (3D). Audio, USB and bridges of a card are others.
std::vector<std::string> nvidia_functions(const Root& root) {
  std::vector<std::string> found;
  const auto folder = root.sys() / "bus/pci/devices";
  for (auto& name : list_names(folder)) {
    if (read_text(folder / name / "vendor") != "0x10de") continue;
    const std::string kind = read_text(folder / name / "class").value_or("");
    if (kind.starts_with("0x0300") || kind.starts_with("0x0302")) found.push_back(std::move(name));
  }
  return found;
}

}  // namespace

GpuReport probe_gpus(const Root& root, GpuLibrary& library) {
  GpuReport report;
  const auto on_bus = nvidia_functions(root);
  const auto devices = library.devices();
  if (!devices) {
    // Neither GPUs nor a library is how most nodes are: nothing to mend.
    if (!on_bus.empty()) {
      report.problem = std::to_string(on_bus.size()) + " NVIDIA GPU(s) on the PCI bus, but NVML does not answer (" +
                       devices.error().message +
                       "): give the agent the runtime class `nvidia` with NVIDIA_DRIVER_CAPABILITIES=utility";
    }
    return report;
  }
  for (const auto& device : *devices) {
    report.gpus.push_back(
        {device.index, device.model, device.memory_mib, pci_numa_node(root, device.pci_address), device.pci_address});
  }
  if (report.gpus.size() < on_bus.size()) {
    std::string missing;
    for (const auto& address : on_bus) {
      bool shown = false;
      for (const auto& gpu : report.gpus) shown = shown || gpu.pci_address == address;
      if (!shown) missing += (missing.empty() ? "" : ", ") + address;
    }
    if (!missing.empty())
      report.problem = "on the PCI bus, but not shown by NVML: " + missing +
                       "; see the kernel log for Xid errors, reset or replace the GPU";
  }
  return report;
}

Hardware probe_hardware(const Root& root, GpuLibrary& library) {
  return {probe_cpu(root), probe_nics(root), probe_gpus(root, library)};
}

}  // namespace paceline::agent
