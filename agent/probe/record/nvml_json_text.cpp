// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "agent/probe/record/record.hpp"

namespace paceline::agent {
namespace {

/// A library may return any bytes: everything but printable ASCII becomes '?'.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c < 0x20 || c > 0x7e ? '?' : c;
  }
  return result + "\"";
}

std::string link_text(const NvLink& link) {
  constexpr std::string_view kNames[] = {"unknown", "gpu", "switch"};
  std::string text = "{\"link\": " + std::to_string(link.link) +
                     ", \"active\": " + (link.active ? "true" : "false") +
                     ", \"remote\": " + json_string(kNames[static_cast<std::size_t>(link.remote)]);
  if (link.errors) text += ", \"errors\": " + std::to_string(*link.errors);
  if (!link.remote_address.empty())
    text += ", \"remotePciAddress\": " + json_string(link.remote_address);
  return text + "}";
}

std::string fabric_text(const Gpu& gpu) {
  std::string text;
  const auto field = [&text](const char* name, const std::string& value) {
    text += std::string(text.empty() ? "" : ", ") + "\"" + name + "\": " + value;
  };
  if (const auto slash = gpu.nvlink_domain.find('/'); slash != std::string::npos) {
    field("clusterUuid", json_string(gpu.nvlink_domain.substr(0, slash)));
    field("cliqueId", gpu.nvlink_domain.substr(slash + 1));
  }
  if (gpu.nvlink_fabric) {
    field("state", std::to_string(gpu.nvlink_fabric->state));
    field("status", std::to_string(gpu.nvlink_fabric->status));
    field("healthMask", std::to_string(gpu.nvlink_fabric->health_mask));
  }
  return text.empty() ? text : ", \"fabric\": {" + text + "}";
}

std::string condition_text(const GpuCondition& condition) {
  std::string text;
  const auto number = [&text](const char* name, const auto& value) {
    if (value) text += ", \"" + std::string(name) + "\": " + std::to_string(*value);
  };
  const auto flag = [&text](const char* name, const std::optional<bool>& value) {
    if (value) text += ", \"" + std::string(name) + "\": " + (*value ? "true" : "false");
  };
  number("uncorrectedErrors", condition.uncorrected_errors);
  number("remappedUncorrected", condition.remapped_uncorrected);
  flag("remappingPending", condition.remapping_pending);
  flag("remappingFailed", condition.remapping_failed);
  number("recoveryAction", condition.recovery_action);
  return text;
}

std::string gpu_text(const Gpu& gpu) {
  std::string text = "    {\"index\": " + std::to_string(gpu.index) +
                     ", \"pciAddress\": " + json_string(gpu.pci_address) +
                     ", \"name\": " + json_string(gpu.model) +
                     ", \"memoryMiB\": " + std::to_string(gpu.memory_mib);
  if (gpu.bar1_mib) text += ", \"bar1MiB\": " + std::to_string(*gpu.bar1_mib);
  if (gpu.compute_capability) {
    text += ", \"computeCapability\": \"" + std::to_string(*gpu.compute_capability / 10) + "." +
            std::to_string(*gpu.compute_capability % 10) + "\"";
  }
  if (gpu.c2c) text += ", \"c2c\": true";
  text += fabric_text(gpu);
  text += condition_text(gpu.condition);
  const auto list = [&text](const char* name, const auto& entries, const auto& shown) {
    if (entries.empty()) return;
    text += std::string(", \"") + name + "\": [";
    for (std::size_t i = 0; i < entries.size(); ++i)
      text += (i == 0 ? "" : ", ") + shown(entries[i]);
    text += "]";
  };
  if (gpu.mig && gpu.mig_profiles.empty()) text += ", \"mig\": []";
  list("mig", gpu.mig_profiles, json_string);
  list("nvlinks", gpu.nvlinks, link_text);
  return text + "}";
}

}  // namespace

std::string nvml_json_text(const Result<std::vector<Gpu>>& answer) {
  std::string text = "{\n  \"version\": 1,\n";
  if (!answer)
    text += "  \"problem\": " + json_string(answer.error().message.substr(0, 120)) + ",\n";
  text += "  \"devices\": [";
  if (answer) {
    for (std::size_t i = 0; i < answer->size(); ++i)
      text += (i == 0 ? "\n" : ",\n") + gpu_text((*answer)[i]);
  }
  return text + "\n  ]\n}\n";
}

}  // namespace paceline::agent
