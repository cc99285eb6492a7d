// SPDX-License-Identifier: Apache-2.0
#include "operator/status/phase.hpp"

#include <algorithm>

#include "common/base/excerpt.hpp"

namespace paceline::status {
namespace {

constexpr std::size_t kMaxMessage = 4096;

}  // namespace

std::string shortened(std::string message) {
  constexpr std::string_view kMore = "…";
  const bool fits = message.size() <= kMaxMessage;
  message = excerpt(message, fits ? kMaxMessage : kMaxMessage - kMore.size());
  return fits ? message : message.append(kMore);
}

void set_condition(api::JobStatus& status, std::string_view type, bool value,
                   std::string_view reason, std::string message, WallTime now) {
  const auto it = std::find_if(status.conditions.begin(), status.conditions.end(),
                               [&](const api::Condition& c) { return c.type == type; });
  // The API stores only seconds; finer times would make an unchanged status look changed.
  const WallTime since = std::chrono::floor<std::chrono::seconds>(now);
  const std::string text = value ? "True" : "False";
  api::Condition next{
      std::string(type),         text, std::string(reason), shortened(std::move(message)), since,
      status.observed_generation};
  if (it == status.conditions.end()) {
    status.conditions.push_back(std::move(next));
    return;
  }
  if ((type == kSucceeded || type == kFailed) && it->status == "True") return;
  if (it->status == text) next.since = it->since;
  *it = std::move(next);
}

void clear_condition(api::JobStatus& status, std::string_view type, std::string_view reason,
                     std::string message, WallTime now) {
  if (status.is_true(type)) set_condition(status, type, false, reason, std::move(message), now);
}

bool replaces_pods(const api::JobStatus& status) {
  return status.is_true(kRestarting) || status.is_true(kReplacing);
}

void compute_phase(api::JobStatus& status) {
  const auto show = [&](const char* phase, std::string_view type) {
    const api::Condition* condition = status.find(type);
    status.phase = phase;
    status.reason = condition == nullptr ? "" : condition->reason;
    status.message = condition == nullptr ? "" : condition->message;
  };
  if (status.is_true(kFailed)) return show("Failed", kFailed);
  if (status.is_true(kSucceeded)) return show("Succeeded", kSucceeded);
  if (status.is_true(kSuspended)) return show("Suspended", kSuspended);
  if (!status.is_true(kPlaced)) return show("Queued", kPlaced);
  if (status.is_true(kRestarting)) return show("Restarting", kRestarting);
  if (status.is_true(kRunning)) return show("Running", kRunning);
  const api::Condition* running = status.find(kRunning);
  if (running != nullptr && running->reason == kCompleting) return show("Running", kRunning);
  show("Starting", running != nullptr && running->reason != "" ? kRunning : kPlaced);
}

}  // namespace paceline::status
