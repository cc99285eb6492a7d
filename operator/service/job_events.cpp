// SPDX-License-Identifier: Apache-2.0
#include "operator/service/job_events.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"

namespace paceline {
namespace {

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

/// " (steps +21.4 %)"; empty if it was not measured.
std::string gain_of(const nlohmann::json& effect) {
  if (!effect.contains("gain")) return "";
  char text[40];
  std::snprintf(text, sizeof text, " (steps %+.1f %%)", effect["gain"].get<double>() / 10);
  return text;
}

/// "acts: loader, compile (steps +21.4 %); does not act: precision".
void tell_effects(const nlohmann::json& effects, kube::EventNote& event) {
  std::string acts;
  std::string rests;
  for (const nlohmann::json& effect : effects) {
    const std::string feature = effect.value("feature", "");
    if (effect.value("kept", false)) {
      append(acts, feature + gain_of(effect));
    } else {
      append(rests, feature);
    }
  }
  event.reason = acts.empty() ? "NotAccelerated" : "Accelerated";
  event.action = "Accelerate";
  if (!acts.empty()) event.note = "acts: " + acts;
  if (rests.empty()) return;
  event.note += (acts.empty() ? "" : "; ") + ("does not act: " + rests) +
                "; status.acceleration.effects says why";
}

}  // namespace

kube::EventNote event_of(const api::TrainingJob& job, const api::JobStatus& status,
                         apply::News news) {
  kube::EventNote event;
  event.regarding = {std::string(contract::kApiVersion), "TrainingJob", job.metadata.name_space,
                     job.metadata.name, job.metadata.uid};
  if (news == apply::News::kEffects) {
    tell_effects(status.effects, event);
    return event;
  }
  event.warning = status.phase == "Failed" || status.phase == "Restarting";
  event.reason = status.reason.empty() ? status.phase : status.reason;
  event.action = status.phase;
  event.note = status.phase + (status.message.empty() ? "" : ": " + status.message);
  return event;
}

}  // namespace paceline
