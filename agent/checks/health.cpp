// SPDX-License-Identifier: Apache-2.0
#include "agent/checks/check_functions.hpp"

namespace paceline::agent {

void check_gpu_health(const Node& node, Findings& found) {
  if (node.fabric.gpus.empty()) return found.skip("no accelerator");
  const std::string& library = node.hardware.gpu.library_problem;
  std::size_t well = 0;
  for (const auto& gpu : node.fabric.gpus) {
    const PciFunction* function = node.function(gpu.address);
    if (function != nullptr && !function->answers) {
      found.bad(gpu.label, "fell off the PCI bus: its configuration space reads as ones");
    } else if (gpu.usable) {
      ++well;
    } else if (library.empty()) {
      found.bad(gpu.label, "is on the PCI bus, but NVML does not show it");
    } else {
      found.unknown(
          gpu.label,
          "NVML does not answer (" + library +
              "): install the driver, or give the container the runtime class nvidia with "
              "NVIDIA_DRIVER_CAPABILITIES=utility");
    }
  }
  if (well > 0)
    found.pass("",
               std::to_string(well) + " of " + std::to_string(node.fabric.gpus.size()) + " answer");
}

}  // namespace paceline::agent
