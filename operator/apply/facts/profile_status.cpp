// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "operator/apply/facts/profile_status.hpp"

#include <string>

#include "common/base/timestamp.hpp"
#include "operator/apply/controller.hpp"
#include "operator/status/phase.hpp"

namespace paceline::apply {

using nlohmann::json;

json status_of(const observe::ProfileView& profile, WallTime now) {
  const bool valid = profile.errors.empty();
  json condition = {{"type", "Valid"},
                    {"status", valid ? "True" : "False"},
                    {"reason", valid ? "Valid" : "InvalidSpec"},
                    {"message", valid ? "jobs can use it"
                                      : status::shortened(api::to_error(profile.errors).message)},
                    {"lastTransitionTime", format_time(now)},
                    {"observedGeneration", profile.generation}};
  const json stored = profile.status.is_object() ? profile.status : json::object();
  for (const json& before : stored.value("conditions", json::array())) {
    if (before.is_object() && before.value("type", json()) == "Valid" &&
        before.value("status", json()) == condition["status"] &&
        before.contains("lastTransitionTime"))
      condition["lastTransitionTime"] = before["lastTransitionTime"];
  }
  return {{"observedGeneration", profile.generation}, {"conditions", json::array({condition})}};
}

Outcome Controller::judge_profile(const std::string& name) {
  const auto profile = parts_.stores.profiles.get(name);
  if (!profile) return {};
  const json status = status_of(*profile, parts_.clock.wall());
  if (status == profile->status) return {};
  const json patch = {{"metadata",
                       {{"resourceVersion", std::to_string(profile->meta.resource_version)},
                        {"uid", profile->meta.uid}}},
                      {"status", status}};
  kube::PatchOptions options;
  options.subresource = "status";
  const auto written = parts_.api.patch(kube::kRuntimeProfiles, "", name, patch.dump(), options);
  if (written) {
    if (!profile->errors.empty())
      spdlog::warn("RuntimeProfile {} cannot be used: {}", name,
                   api::to_error(profile->errors).message);
    return {};
  }
  // Deleted, or the CRD of an earlier release is installed, which has no status.
  if (written.error().code == Code::kNotFound) return {};
  if (written.error().code != Code::kConflict)
    spdlog::warn("status of RuntimeProfile {}: {}", name, to_string(written.error()));
  return {true, std::nullopt};
}

}  // namespace paceline::apply
