// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/hardware/accelerator.hpp"

namespace paceline::agent {
namespace {

/// Xid errors that NVIDIA's catalogue lays to hardware, its links or its firmware. Most others are
/// faults of a program (13, 31, 43, 45), or only record a mended row (63).
constexpr std::array kHardwareXids{48, 62, 64, 74, 79, 92, 94, 95, 110, 119, 120, 136, 140, 143};

constexpr int kReset = 1;
constexpr int kReboot = 2;

/// NVML's GPU recovery actions.
std::string_view recovery(int action) {
  constexpr std::array<std::string_view, 5> kActions{"nothing", "a reset", "a reboot of the node",
                                                     "to be drained of peer-to-peer traffic",
                                                     "to be drained and reset"};
  return action > 0 && action < static_cast<int>(kActions.size())
             ? kActions.at(static_cast<std::size_t>(action))
             : "an unknown action";
}

void judge_memory(const std::string& label, const GpuCondition& gpu, Findings& found) {
  const std::uint64_t errors = gpu.uncorrected_errors.value_or(0);
  if (gpu.remapping_failed == true) {
    found.bad(label, "a row of its memory failed, and no spare row was left");
  } else if (const int action = gpu.recovery_action.value_or(0); action > 0) {
    const std::string says = "its driver asks for " + std::string(recovery(action));
    // The others concern its links, or a GPU that works with less than all of its memory.
    action == kReset || action == kReboot ? found.bad(label, says) : found.warn(label, says);
  } else if (gpu.remapping_pending == true) {
    found.warn(label, "a failing row of its memory is replaced at the next reset");
  } else if (errors > 0) {
    found.warn(label,
               std::to_string(errors) + " uncorrected ECC errors since its driver was loaded");
  } else if (gpu == GpuCondition{}) {
    found.unknown(label, "NVML tells neither ECC errors nor replaced rows");
  } else {
    found.pass(label, "no uncorrected ECC error, no row to replace");
  }
}

}  // namespace

void check_gpu_health(const Node& node, Findings& found) {
  for (const auto& function : node.hardware.pci) {
    // NVIDIA's virtual functions can be hundreds, and their GPU is told.
    if (accelerator_kind(function) != nullptr && !function.virtual_function &&
        is_kept_for_guests(function))
      found.set_aside(function.address,
                      "is bound to " + function.driver + ": kept for virtual machines");
  }
  if (node.fabric.gpus.empty()) return found.skip("no accelerator");
  if (node.hardware.from_topology_file)
    return found.unknown("", "a topology file does not tell whether GPUs answer");
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

void check_gpu_memory(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (node.hardware.from_topology_file)
    return found.unknown("", "a topology file does not tell errors of memory");
  bool any = false;
  for (const auto& gpu : node.hardware.gpu.gpus) {
    const PciFunction* function = node.function(gpu.pci_address);
    if (function == nullptr || !is_nvidia(*function)) continue;
    any = true;
    judge_memory("GPU" + std::to_string(gpu.index), gpu.condition, found);
  }
  if (!any) found.unknown("", "NVML shows no GPU");
}

void check_xid(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (!node.settings.xids)
    return found.unknown("", "the kernel log cannot be read from here: that takes CAP_SYSLOG");
  bool any = false;
  for (const auto& gpu : node.fabric.gpus) {
    const auto logged = node.settings.xids->find(gpu.address);
    if (logged == node.settings.xids->end()) continue;
    std::string codes;
    for (const int code : logged->second) {
      if (std::find(kHardwareXids.begin(), kHardwareXids.end(), code) != kHardwareXids.end())
        codes += (codes.empty() ? "" : ", ") + std::to_string(code);
    }
    if (codes.empty()) continue;
    any = true;
    found.bad(gpu.label, "Xid " + codes + " in the kernel log since boot");
  }
  if (!any) found.pass("", "the kernel log has no Xid that speaks of hardware");
}

}  // namespace paceline::agent
