// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "agent/checks/rows.hpp"

namespace paceline::agent {
namespace {

enum class DmaBuf { kImpossible, kNotKnown, kPossible };

struct DmaBufAnswer {
  DmaBuf possible = DmaBuf::kNotKnown;
  std::string why;
};

/// What must hold before a registration is worth a try.
DmaBufAnswer dmabuf_prerequisites(const Settings& settings) {
  int major = 0;
  int minor = 0;
  const bool kernel_known = std::sscanf(settings.kernel.c_str(), "%4d.%4d", &major, &minor) == 2;
  if (kernel_known && (major < 5 || (major == 5 && minor < 12)))
    return {DmaBuf::kImpossible, "kernel " + settings.kernel + " is older than 5.12"};
  const bool open = settings.nvidia_driver.find("Open Kernel Module") != std::string::npos;
  if (!settings.nvidia_driver.empty() && !open)
    return {DmaBuf::kImpossible, "the kernel module is not the open one: " + settings.nvidia_driver};
  if (!kernel_known) return {DmaBuf::kNotKnown, "the kernel's release cannot be read"};
  if (!open) return {DmaBuf::kNotKnown, "/proc/driver/nvidia/version cannot be read"};
  return {DmaBuf::kPossible, "kernel " + settings.kernel + " and the open kernel module allow it"};
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

void check_dmabuf(const Node& node, Findings& found) {
  if (!has_nvidia(node, found) || !has_nic(node, found)) return;
  const auto answer = dmabuf_prerequisites(node.settings);
  if (answer.possible == DmaBuf::kNotKnown) return found.unknown("", answer.why);
  if (answer.possible == DmaBuf::kPossible) return found.unknown("", answer.why + "; no registration was tried");
  if (!node.settings.peer_memory.empty())
    return found.warn("", answer.why + "; " + join(node.settings.peer_memory) + " has to take its place");
  found.bad("", answer.why + ", and no peer memory module takes its place");
}

void check_peermem_loaded(const Node& node, Findings& found) {
  if (!has_nvidia(node, found) || !has_nic(node, found)) return;
  if (!node.settings.peer_memory.empty()) return found.pass("", join(node.settings.peer_memory) + " is loaded");
  if (node.settings.modules && node.settings.modules->contains("nvidia_peermem"))
    return found.bad("", "nvidia_peermem is in /proc/modules, but has no version in sysfs: NCCL does not see it");
  switch (dmabuf_prerequisites(node.settings).possible) {
    case DmaBuf::kPossible: return found.skip("not loaded, and not needed where dma-buf works");
    case DmaBuf::kNotKnown: return found.unknown("", "not loaded; whether dma-buf takes its place is not known");
    case DmaBuf::kImpossible: return found.bad("", "not loaded, and dma-buf cannot take its place");
  }
}

void check_peermem_effective(const Node& node, Findings& found) {
  if (!has_nvidia(node, found) || !has_nic(node, found)) return;
  if (node.settings.peer_memory.empty()) return found.skip("no peer memory module is loaded");
  if (!node.settings.modules) return found.unknown("", "/proc/modules cannot be read");
  for (const char* user_of : {"ib_core", "ib_uverbs"}) {
    const auto core = node.settings.modules->find(user_of);
    if (core == node.settings.modules->end()) continue;
    const bool used = std::any_of(core->second.begin(), core->second.end(), [](const std::string& user) {
      return user == "nvidia_peermem" || user == "nv_peer_mem";
    });
    if (used) return found.unknown("", "bound to " + std::string(user_of) + "; no registration was tried");
  }
  found.bad("", join(node.settings.peer_memory) + " is loaded, but the RDMA core does not list it as a user");
}

void check_peermem_params(const Node& node, Findings& found) {
  if (!has_nvidia(node, found) || !has_nic(node, found)) return;
  const auto& loaded = node.settings.peer_memory;
  if (std::find(loaded.begin(), loaded.end(), "nvidia_peermem") == loaded.end())
    return found.skip("nvidia_peermem is not loaded");
  const auto& value = node.settings.peerdirect_support;
  if (!value) return found.unknown("", "parameter peerdirect_support cannot be read");
  const std::string says = "peerdirect_support is " + std::to_string(*value);
  if (*value == 0) return found.pass("", says);
  if (node.settings.mlx5_version.starts_with("4.9")) return found.pass("", says + ", as MLNX_OFED 4.9 wants it");
  found.bad("", says + ", which is for MLNX_OFED 4.9 alone");
}

}  // namespace paceline::agent
