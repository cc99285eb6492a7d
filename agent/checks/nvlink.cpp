// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "agent/checks/rows.hpp"

namespace paceline::agent {
namespace {

constexpr int kNotSupported = 0;
constexpr int kCompleted = 3;
constexpr std::uint32_t kNvSwitchClass = 0x0680;

std::string gpu_label(const Gpu& gpu) { return "GPU" + std::to_string(gpu.index); }

long active_links(const Gpu& gpu) {
  return std::count_if(gpu.nvlinks.begin(), gpu.nvlinks.end(), [](const NvLink& link) { return link.active; });
}

/// NVSwitches on this node's own bus: then a fabric manager of this node programs them.
bool has_own_switches(const Node& node) {
  return std::any_of(node.hardware.pci.begin(), node.hardware.pci.end(), [](const PciFunction& function) {
    return function.vendor == 0x10de && function.class_code >> 8U == kNvSwitchClass;
  });
}

/// The problems that the pairs of bits in NVML's mask name.
std::string health_problems(std::uint32_t mask) {
  constexpr std::array kNames{"bandwidth is degraded", "routes are being recovered", "routes are unhealthy",
                              "recovers from an access timeout"};
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if ((mask >> (2 * i) & 3U) == 1U) text += (text.empty() ? "" : ", ") + std::string(kNames.at(i));
  }
  return text;
}

bool runs(const Settings& settings, std::string_view name) {
  return std::any_of(settings.processes.begin(), settings.processes.end(),
                     [&](const std::string& process) { return process.starts_with(name); });
}

bool has_device(const Settings& settings, std::string_view name) {
  return std::find(settings.char_devices->begin(), settings.char_devices->end(), name) != settings.char_devices->end();
}

/// GPUs older than the registration: the fabric manager's process is all there is to see.
void check_fabric_manager(const Node& node, Findings& found) {
  if (runs(node.settings, "nv-fabric")) return found.pass("", "nv-fabricmanager runs");
  if (node.settings.sees_all_processes) return found.bad("", "NVSwitches, but no nv-fabricmanager runs");
  found.unknown("", "these GPUs tell no fabric state, and the node's processes cannot be seen from here");
}

}  // namespace

void check_nvlink(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (node.hardware.gpu.gpus.empty()) return found.unknown("", "NVML shows no GPU");
  long most = 0;
  for (const auto& gpu : node.hardware.gpu.gpus) most = std::max(most, static_cast<long>(gpu.nvlinks.size()));
  if (most == 0) return found.skip("no GPU has NVLinks");
  for (const auto& gpu : node.hardware.gpu.gpus) {
    const long active = active_links(gpu);
    const std::string says = std::to_string(active) + " of " + std::to_string(most) + " links are active";
    if (active < most) {
      found.bad(gpu_label(gpu), says);
      continue;
    }
    const std::string name = gpu_label(gpu) + " nvlink_errors";
    const auto now = node.settings.counters.find(name);
    const auto before = node.earlier ? node.earlier->counters.find(name) : Counters::const_iterator{};
    const bool compared = node.earlier && now != node.settings.counters.end() && before != node.earlier->counters.end();
    if (compared && now->second > before->second) {
      found.warn(gpu_label(gpu), says + ", but their error counters rose by " +
                                     std::to_string(now->second - before->second) + " within " +
                                     std::to_string(node.earlier->age.count() / 60) + " min");
    } else {
      found.pass(gpu_label(gpu), says);
    }
  }
}

void check_fabric(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  const bool switched = !node.fabric.nvlink_groups.empty() || has_own_switches(node);
  if (!switched) return found.skip("no NVSwitch");
  if (node.hardware.gpu.gpus.empty()) return found.unknown("", "NVML shows no GPU");
  bool told = false;
  for (const auto& gpu : node.hardware.gpu.gpus) {
    if (!gpu.nvlink_fabric || gpu.nvlink_fabric->state == kNotSupported) continue;
    told = true;
    constexpr std::array kStates{"not supported", "not started", "in progress", "completed"};
    const int state = std::clamp(gpu.nvlink_fabric->state, 0, 3);
    const std::string says = std::string("registration ") + kStates.at(static_cast<std::size_t>(state));
    const std::string ill = health_problems(gpu.nvlink_fabric->health_mask);
    if (gpu.nvlink_fabric->state != kCompleted) {
      found.bad(gpu_label(gpu), says);
    } else if (gpu.nvlink_fabric->status != 0) {
      found.bad(gpu_label(gpu), says + " with status " + std::to_string(gpu.nvlink_fabric->status));
    } else if (!ill.empty()) {
      found.bad(gpu_label(gpu), ill);
    } else {
      found.pass(gpu_label(gpu), says);
    }
  }
  if (told) return;
  has_own_switches(node) ? check_fabric_manager(node, found)
                         : found.unknown("", "NVML tells no fabric state of these GPUs");
}

void check_imex(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (node.fabric.nvlink_domain.empty()) return found.skip("no NVLink domain beyond this node");
  constexpr std::string_view kDevice = "nvidia-caps-imex-channels";
  if (!node.settings.char_devices) return found.unknown("", "/proc/devices cannot be read");
  if (!has_device(node.settings, kDevice))
    return found.bad("", "the driver offers no " + std::string(kDevice) + " device");
  if (runs(node.settings, "nvidia-imex"))
    return found.unknown("", "nvidia-imex runs here; the state of its domain is told by nvidia-imex-ctl -N alone");
  if (node.settings.sees_all_processes) return found.bad("", "no nvidia-imex runs on this node");
  found.unknown("", node.settings.imex_channels.empty()
                        ? "the driver offers channels; whether the domain is up cannot be seen from here"
                        : std::to_string(node.settings.imex_channels.size()) +
                              " channels exist; whether the domain is up cannot be seen from here");
}

}  // namespace paceline::agent
