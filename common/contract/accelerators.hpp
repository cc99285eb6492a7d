// SPDX-License-Identifier: Apache-2.0
// What Kubernetes calls the accelerators of each vendor, in one table: the agent names a node's
// devices by it, the operator counts what a pod asks for. Constants and one pure function; nothing
// fails.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace paceline::contract {

inline constexpr std::string_view kNvidiaGpu = "nvidia.com/gpu";
/// The rest of the name is the profile, as in "nvidia.com/mig-1g.10gb".
inline constexpr std::string_view kNvidiaMigPrefix = "nvidia.com/mig-";
inline constexpr std::string_view kAmdGpu = "amd.com/gpu";
inline constexpr std::string_view kIntelGpu = "gpu.intel.com/i915";
inline constexpr std::string_view kIntelGpuXe = "gpu.intel.com/xe";
inline constexpr std::string_view kGaudi = "habana.ai/gaudi";
inline constexpr std::string_view kAscend = "huawei.com/Ascend910";
inline constexpr std::string_view kNeuron = "aws.amazon.com/neuron";
inline constexpr std::string_view kTpu = "google.com/tpu";

inline constexpr std::array kAcceleratorResources{kNvidiaGpu, kAmdGpu, kIntelGpu, kIntelGpuXe,
                                                  kGaudi,     kAscend, kNeuron,   kTpu};

/// Whether a unit of this resource is an accelerator, or a part of one that is used like one.
constexpr bool is_accelerator_resource(std::string_view name) {
  const auto slash = name.find('/');
  if (slash == std::string_view::npos) return false;  // Kubernetes' own: cpu, memory
  // A device that several pods share, as NVIDIA's plugin may call it.
  constexpr std::string_view kShared = ".shared";
  if (name.ends_with(kShared)) name.remove_suffix(kShared.size());
  if (std::find(kAcceleratorResources.begin(), kAcceleratorResources.end(), name) !=
      kAcceleratorResources.end())
    return true;
  // Vendors that are not in the table call theirs so, and Huawei's names are one for each model.
  const std::string_view kind = name.substr(slash + 1);
  return name.starts_with(kNvidiaMigPrefix) || name.starts_with("huawei.com/") || kind == "gpu" ||
         kind.starts_with("mig-") || kind == "neuron" || kind == "gaudi" || kind == "tpu";
}

}  // namespace paceline::contract
