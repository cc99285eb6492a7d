// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/hardware/nvlinks.hpp"

namespace paceline::agent {
namespace {

constexpr int kNotSupported = 0;
constexpr int kCompleted = 3;

std::string gpu_label(const Gpu& gpu) { return "GPU" + std::to_string(gpu.index); }

long links_to(const Gpu& gpu, const std::string& address) {
  return std::count_if(gpu.nvlinks.begin(), gpu.nvlinks.end(), [&](const NvLink& link) {
    return link.active && link.remote != NvLinkRemote::kSwitch && link.remote_address == address;
  });
}

/// The faults that the far ends of a GPU's links show; empty for none. Each pair of GPUs is
/// reported once, at the GPU with the lower index.
std::string wrong_peer(const Node& node, const Gpu& gpu) {
  const auto& gpus = node.hardware.gpu.gpus;
  std::set<std::string> seen;
  for (const auto& link : gpu.nvlinks) {
    if (!link.active || link.remote_address.empty() || link.remote == NvLinkRemote::kSwitch)
      continue;
    if (!seen.insert(link.remote_address).second) continue;
    const auto peer = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& other) {
      return other.pci_address == link.remote_address;
    });
    if (peer == gpus.end()) {
      // A hypervisor may keep the other GPU, and gpu-health reports a GPU that its driver lost.
      const bool here = node.function(link.remote_address) != nullptr;
      if (link.remote == NvLinkRemote::kGpu && !node.is_virtual && !here)
        return "link " + std::to_string(link.link) + " leads to " + link.remote_address +
               ", which is not on this node";
      continue;
    }
    // A link of the other GPU without a far end may lead anywhere.
    if (links_to(*peer, "") > 0) continue;
    const long there = links_to(gpu, peer->pci_address);
    const long back = links_to(*peer, gpu.pci_address);
    if (there > back || (there < back && gpu.index < peer->index)) {
      return std::to_string(there) + " links lead to " + gpu_label(*peer) + ", which has " +
             std::to_string(back) + " back";
    }
  }
  return {};
}

/// The names of the problems in NVML's mask of bit pairs.
std::string health_problems(std::uint32_t mask) {
  constexpr std::array kNames{"bandwidth is degraded", "routes are being recovered",
                              "routes are unhealthy", "recovers from an access timeout"};
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if ((mask >> (2 * i) & 3U) == 1U)
      text += (text.empty() ? "" : ", ") + std::string(kNames.at(i));
  }
  return text;
}

bool runs(const Settings& settings, std::string_view name) {
  return std::any_of(settings.processes.begin(), settings.processes.end(),
                     [&](const std::string& process) { return process.starts_with(name); });
}

bool has_device(const Settings& settings, std::string_view name) {
  return std::find(settings.char_devices->begin(), settings.char_devices->end(), name) !=
         settings.char_devices->end();
}

/// For GPUs that do not register, only the fabric manager's process can be seen.
void check_fabric_manager(const Node& node, Findings& found) {
  if (runs(node.settings, "nv-fabric")) return found.pass("", "nv-fabricmanager runs");
  if (node.settings.sees_all_processes)
    return found.bad("", "NVSwitches, but no nv-fabricmanager runs");
  found.unknown(
      "", "these GPUs tell no fabric state, and the node's processes cannot be seen from here");
}

/// Judges an attempt to share memory with the domain; returns false if there was none.
bool tell_exports(const Node& node, Findings& found) {
  if (!node.registrations) return false;
  std::size_t done = 0;
  bool any = false;
  // An attempt from before the agent's start may be older than the service. A refusal counts as a
  // failure only if it is recent.
  const bool of_now = node.registrations->in_pod || node.settings.sees_all_processes;
  for (const auto& attempt : node.registrations->attempts) {
    const FabricDevice* gpu = gpu_of(node, attempt);
    if (attempt.step != Step::kFabricMemory || attempt.outcome == Outcome::kNotTried ||
        gpu == nullptr)
      continue;
    any = true;
    if (attempt.outcome == Outcome::kDone) {
      ++done;
    } else if (of_now || attempt.outcome == Outcome::kHung) {
      found.bad(gpu->label, describe(attempt) + ": " + attempt.why);
    } else {
      found.warn(gpu->label, describe(attempt) + ": " + attempt.why +
                                 ", when this node was looked at; restart its agent to look again");
    }
  }
  if (done > 0)
    found.pass(
        "", "memory of " + std::to_string(done) + " GPUs was exported to the domain and imported");
  return any;
}

}  // namespace

void check_nvlink(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (node.hardware.from_topology_file)
    return found.unknown("", "a topology file lists links, and not whether they are active");
  if (node.hardware.gpu.gpus.empty()) return found.unknown("", "NVML shows no GPU");
  bool any = false;
  bool listed = false;
  for (const auto& gpu : node.hardware.gpu.gpus) {
    listed = listed || !gpu.nvlinks.empty();
    if (gpu.mig) {
      any = true;
      found.set_aside(gpu_label(gpu), "is in MIG mode, in which NVLink carries no traffic");
      continue;
    }
    const auto expected = expected_nvlinks(node.hardware, gpu);
    if (!expected) continue;
    any = true;
    const int active = active_nvlinks(gpu);
    const std::string says =
        std::to_string(active) + " of " + std::to_string(*expected) + " links are active";
    if (active < *expected) {
      found.bad(gpu_label(gpu), says);
      continue;
    }
    if (const std::string wrong = wrong_peer(node, gpu); !wrong.empty()) {
      found.bad(gpu_label(gpu), says + ", but " + wrong);
      continue;
    }
    const std::string name = nvlink_counter(gpu);
    const auto now = node.settings.counters.find(name);
    const auto before =
        node.earlier ? node.earlier->counters.find(name) : Counters::const_iterator{};
    const bool compared = node.earlier && now != node.settings.counters.end() &&
                          before != node.earlier->counters.end();
    if (compared && now->second > before->second) {
      found.warn(gpu_label(gpu), says + ", but their error counters rose by " +
                                     std::to_string(now->second - before->second) + " within " +
                                     std::to_string(node.earlier->age.count() / 60) + " min");
    } else {
      found.pass(gpu_label(gpu), says);
    }
  }
  if (!any)
    found.skip(listed ? "no NVLink leads anywhere: cards without a bridge" : "no GPU has NVLinks");
}

void check_fabric(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  const bool switched = !node.fabric.nvlink_groups.empty() || has_own_switches(node.hardware);
  if (!switched) return found.skip("no NVSwitch");
  if (node.hardware.gpu.gpus.empty()) return found.unknown("", "NVML shows no GPU");
  bool told = false;
  for (const auto& gpu : node.hardware.gpu.gpus) {
    if (!gpu.nvlink_fabric || gpu.nvlink_fabric->state == kNotSupported) continue;
    told = true;
    constexpr std::array kStates{"not supported", "not started", "in progress", "completed"};
    const int state = std::clamp(gpu.nvlink_fabric->state, 0, 3);
    const std::string says =
        std::string("registration ") + kStates.at(static_cast<std::size_t>(state));
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
  has_own_switches(node.hardware) ? check_fabric_manager(node, found)
                                  : found.unknown("", "NVML tells no fabric state of these GPUs");
}

void check_imex(const Node& node, Findings& found) {
  if (!has_nvidia(node, found)) return;
  if (node.fabric.nvlink_domain.empty()) return found.skip("no NVLink domain beyond this node");
  constexpr std::string_view kDevice = "nvidia-caps-imex-channels";
  if (!node.settings.char_devices) return found.unknown("", "/proc/devices cannot be read");
  if (!has_device(node.settings, kDevice))
    return found.bad("", "the driver offers no " + std::string(kDevice) + " device");
  const bool runs_here = runs(node.settings, "nvidia-imex");
  if (tell_exports(node, found)) return;
  if (node.settings.sees_all_processes && !runs_here) {
    return found.unknown(
        "",
        "no nvidia-imex runs on this node: right where ComputeDomains start it for each job, "
        "else start it");
  }
  if (runs_here) {
    return found.unknown(
        "",
        "nvidia-imex runs here; whether its domain is up is told by nvidia-imex-ctl -N, and by "
        "`paceline doctor --live`");
  }
  found.unknown(
      "", node.settings.imex_channels.empty()
              ? "the driver offers channels; whether the domain is up cannot be seen from here"
              : std::to_string(node.settings.imex_channels.size()) +
                    " channels exist; whether the domain is up cannot be seen from here");
}

}  // namespace paceline::agent
