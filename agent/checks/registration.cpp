// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/hardware/rdma.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::agent {
namespace {

enum class DmaBuf { kImpossible, kNotKnown, kPossible };

struct DmaBufAnswer {
  DmaBuf possible = DmaBuf::kNotKnown;
  std::string why;
};

/// Kernels of distributions that carry later changes back, and drivers installed beside the
/// kernel's own: the kernel's number then does not tell what they can do.
bool backports(const Settings& settings) {
  const auto named = [&](std::string_view part) {
    return settings.kernel.find(part) != std::string::npos;
  };
  return named(".el") || named("-default") || named(".amzn") || !settings.mlx5_version.empty();
}

/// What must hold before a registration is tried.
DmaBufAnswer dmabuf_prerequisites(const Settings& settings) {
  int major = 0;
  int minor = 0;
  const bool kernel_known = std::sscanf(settings.kernel.c_str(), "%4d.%4d", &major, &minor) == 2;
  const bool old = kernel_known && (major < 5 || (major == 5 && minor < 12));
  if (old && !backports(settings))
    return {DmaBuf::kImpossible, "kernel " + settings.kernel + " is older than 5.12"};
  const bool open = settings.nvidia_driver.find("Open Kernel Module") != std::string::npos;
  if (!settings.nvidia_driver.empty() && !open)
    return {DmaBuf::kImpossible,
            "the kernel module is not the open one: " + settings.nvidia_driver};
  if (!kernel_known) return {DmaBuf::kNotKnown, "the kernel's release cannot be read"};
  if (!open) return {DmaBuf::kNotKnown, "/proc/driver/nvidia/version cannot be read"};
  if (old)
    return {DmaBuf::kNotKnown, "kernel " + settings.kernel +
                                   " is older than 5.12, but it or the RDMA driver may carry "
                                   "dma-buf back"};
  return {DmaBuf::kPossible, "kernel " + settings.kernel + " and the open kernel module allow it"};
}

/// The attempts of one way to register a GPU's memory with a NIC that jobs use.
struct Tried {
  int done = 0;
  std::optional<WallTime> recalled;  // the oldest attempt of an earlier scan
  std::vector<const Attempt*> failed;
  bool any() const { return done > 0 || !failed.empty(); }
};

bool concerns_jobs(const Node& node, const Attempt& attempt) {
  return attempt.nic.empty() ||
         std::any_of(node.compute_nics.begin(), node.compute_nics.end(),
                     [&](const RdmaDevice* nic) { return nic->name == attempt.nic; });
}

Tried tried(const Node& node, Step way) {
  Tried all;
  if (!node.registrations) return all;
  for (const auto& attempt : node.registrations->attempts) {
    if (attempt.step != way || !concerns_jobs(node, attempt) || gpu_of(node, attempt) == nullptr)
      continue;
    if (attempt.outcome == Outcome::kDone) {
      ++all.done;
      if (attempt.taken)
        all.recalled = std::min(all.recalled.value_or(*attempt.taken), *attempt.taken);
    }
    if (attempt.outcome == Outcome::kRefused || attempt.outcome == Outcome::kHung)
      all.failed.push_back(&attempt);
  }
  return all;
}

bool works(const Node& node, Step way, const Attempt& pair) {
  const auto& all = node.registrations->attempts;
  return std::any_of(all.begin(), all.end(), [&](const Attempt& attempt) {
    return attempt.step == way && attempt.nic == pair.nic && attempt.gpu == pair.gpu &&
           attempt.outcome == Outcome::kDone;
  });
}

/// The first step before a registration that was not done; null if all were done.
const Attempt* obstacle(const Node& node) {
  for (const auto& attempt : node.registrations->attempts) {
    const bool way = attempt.step == Step::kDmaBuf || attempt.step == Step::kPeerMemory;
    const bool aside = way || attempt.step == Step::kLinkLoad || only_tells(attempt.step);
    if (aside && attempt.outcome != Outcome::kHung) continue;
    if (attempt.outcome != Outcome::kDone && concerns_jobs(node, attempt)) return &attempt;
  }
  return nullptr;
}

std::string why_untried(const Node& node) {
  if (!node.registrations) return "no registration was tried: `paceline doctor --live` does";
  if (!node.registrations->problem.empty())
    return "no registration was tried: " + node.registrations->problem;
  const Attempt* first = obstacle(node);
  return first == nullptr ? "no registration was tried" : describe(*first) + ": " + first->why;
}

/// True if every near pair of GPU and NIC was tried.
bool tried_all(const Node& node, Step way) {
  return std::all_of(node.pairs.begin(), node.pairs.end(), [&](const Pair& pair) {
    const auto& all = node.registrations->attempts;
    return std::any_of(all.begin(), all.end(), [&](const Attempt& attempt) {
      return attempt.step == way && attempt.nic == pair.nic->label &&
             attempt.gpu == pair.gpu->address;
    });
  });
}

/// Reports the attempts: bad if neither way works, a warning if only the other way does. A driver
/// that hangs is always bad, because it hangs every job.
void tell_tried(const Node& node, Findings& found, Step way, const Tried& all) {
  const Step other = way == Step::kDmaBuf ? Step::kPeerMemory : Step::kDmaBuf;
  for (const Attempt* attempt : all.failed) {
    const std::string pair = gpu_of(node, *attempt)->label + " " + attempt->nic;
    if (attempt->outcome != Outcome::kHung && works(node, other, *attempt)) {
      found.warn(
          pair, attempt->why + (other == Step::kPeerMemory ? "; by its pointer it can be registered"
                                                           : "; as dma-buf it can be registered"));
    } else {
      found.bad(pair, attempt->why);
    }
  }
  if (all.done > 0) {
    const std::string since =
        all.recalled ? ", some at " + format_time(*all.recalled) + ", when their GPUs were idle"
                     : "";
    found.pass("", "registered for " + std::to_string(all.done) + " pairs of GPU and NIC" + since);
  }
  if (!tried_all(node, way)) found.unknown("", "not for every pair: " + why_untried(node));
}

/// The step before all registrations at which a driver hung; null if none did.
const Attempt* hung_before(const Node& node) {
  if (!node.registrations) return nullptr;
  for (const auto& attempt : node.registrations->attempts) {
    const bool way = attempt.step == Step::kDmaBuf || attempt.step == Step::kPeerMemory;
    if (!way && attempt.outcome == Outcome::kHung && concerns_jobs(node, attempt)) return &attempt;
  }
  return nullptr;
}

/// What NCCL wrote into its topology file: gdr of each GPU and NIC.
void tell_nccl_gdr(const Node& node, Findings& found) {
  bool any = false;
  const auto tell = [&](const std::string& label, const std::optional<bool>& gdr) {
    if (!gdr) return;
    any = true;
    *gdr ? found.pass(label, "NCCL found GPUDirect RDMA: gdr=\"1\" in the topology file")
         : found.bad(label, "NCCL found no GPUDirect RDMA: gdr=\"0\" in the topology file");
  };
  for (const auto& gpu : node.hardware.gpu.gpus)
    tell("GPU" + std::to_string(gpu.index), gpu.nccl_gdr);
  for (const auto* nic : node.compute_nics) tell(nic->name, nic->nccl_gdr);
  if (!any) found.unknown("", "the topology file holds no attribute gdr");
}

bool only_efa(const Node& node) {
  return std::all_of(node.compute_nics.begin(), node.compute_nics.end(),
                     [](const RdmaDevice* nic) { return is_efa(*nic); });
}

/// EFA's driver registers GPU memory by itself, so neither dma-buf nor a peer memory module of
/// NVIDIA is needed.
void tell_efa(const Node& node, Findings& found) {
  const auto& modules = node.settings.rdma_modules;
  const bool module = std::find(modules.begin(), modules.end(), "efa_nv_peermem") != modules.end();
  for (const auto* nic : node.compute_nics) {
    if (!nic->own_peer_memory.empty()) {
      found.pass(nic->name, "EFA's driver registers memory of " + nic->own_peer_memory + " itself");
    } else if (module) {
      found.pass(nic->name, "EFA's driver registers GPU memory with efa_nv_peermem");
    } else {
      found.unknown(nic->name,
                    "EFA's driver names no memory that it registers; " + why_untried(node));
    }
  }
}

/// Skips a check of NVIDIA's peer memory modules on a node where they cannot matter.
bool peer_memory_matters(const Node& node, Findings& found) {
  if (!has_nvidia(node, found) || !has_nic(node, found)) return false;
  if (node.hardware.from_topology_file) {
    found.unknown("", "a topology file does not tell which modules are loaded");
    return false;
  }
  if (!only_efa(node)) return true;
  found.skip("EFA's driver registers GPU memory without such a module");
  return false;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

const FabricDevice* gpu_of(const Node& node, const Attempt& attempt) {
  const auto found =
      std::find_if(node.fabric.gpus.begin(), node.fabric.gpus.end(),
                   [&](const FabricDevice& gpu) { return gpu.address == attempt.gpu; });
  return found == node.fabric.gpus.end() ? nullptr : &*found;
}

void check_dmabuf(const Node& node, Findings& found) {
  if (node.hardware.from_topology_file) return tell_nccl_gdr(node, found);
  if (!has_nvidia(node, found) || !has_nic(node, found)) return;
  const auto answer = dmabuf_prerequisites(node.settings);
  const Tried all = tried(node, Step::kDmaBuf);
  if (const Attempt* hung = hung_before(node)) found.bad("", describe(*hung) + ": " + hung->why);
  // If files show why it cannot work, that says more than the errno.
  if (all.done > 0 || (all.any() && answer.possible != DmaBuf::kImpossible))
    return tell_tried(node, found, Step::kDmaBuf, all);
  if (only_efa(node)) return tell_efa(node, found);
  if (answer.possible == DmaBuf::kNotKnown)
    return found.unknown("", answer.why + "; " + why_untried(node));
  if (answer.possible == DmaBuf::kPossible)
    return found.unknown("", answer.why + "; " + why_untried(node));
  if (!node.settings.peer_memory.empty())
    return found.warn(
        "", answer.why + "; " + join(node.settings.peer_memory) + " has to take its place");
  found.bad("", answer.why + ", and no peer memory module takes its place");
}

void check_peermem_loaded(const Node& node, Findings& found) {
  if (!peer_memory_matters(node, found)) return;
  if (!node.settings.peer_memory.empty())
    return found.pass("", join(node.settings.peer_memory) + " is loaded");
  if (node.settings.modules && node.settings.modules->contains("nvidia_peermem"))
    return found.bad(
        "",
        "nvidia_peermem is in /proc/modules, but has no version in sysfs: NCCL does not see it");
  switch (dmabuf_prerequisites(node.settings).possible) {
    case DmaBuf::kPossible: return found.skip("not loaded, and not needed where dma-buf works");
    case DmaBuf::kNotKnown:
      return found.unknown("", "not loaded; whether dma-buf takes its place is not known");
    case DmaBuf::kImpossible: return found.bad("", "not loaded, and dma-buf cannot take its place");
  }
}

void check_peermem_effective(const Node& node, Findings& found) {
  if (!peer_memory_matters(node, found)) return;
  const Tried all = tried(node, Step::kPeerMemory);
  if (node.settings.peer_memory.empty() && all.done == 0)
    return found.skip("no peer memory module is loaded");
  if (all.any()) return tell_tried(node, found, Step::kPeerMemory, all);
  if (!node.settings.modules) return found.unknown("", "/proc/modules cannot be read");
  for (const char* user_of : {"ib_core", "ib_uverbs"}) {
    const auto core = node.settings.modules->find(user_of);
    if (core == node.settings.modules->end()) continue;
    const bool used = std::any_of(
        core->second.begin(), core->second.end(),
        [](const std::string& user) { return user == "nvidia_peermem" || user == "nv_peer_mem"; });
    if (used)
      return found.unknown("", "bound to " + std::string(user_of) + "; " + why_untried(node));
  }
  found.bad("", join(node.settings.peer_memory) +
                    " is loaded, but the RDMA core does not list it as a user");
}

void check_peermem_params(const Node& node, Findings& found) {
  if (!peer_memory_matters(node, found)) return;
  const auto& loaded = node.settings.peer_memory;
  if (std::find(loaded.begin(), loaded.end(), "nvidia_peermem") == loaded.end())
    return found.skip("nvidia_peermem is not loaded");
  const auto& value = node.settings.peerdirect_support;
  if (!value) return found.unknown("", "parameter peerdirect_support cannot be read");
  const std::string says = "peerdirect_support is " + std::to_string(*value);
  if (*value == 0) return found.pass("", says);
  if (node.settings.mlx5_version.starts_with("4.9"))
    return found.pass("", says + ", as MLNX_OFED 4.9 wants it");
  found.bad("", says + ", which is for MLNX_OFED 4.9 alone");
}

}  // namespace paceline::agent
