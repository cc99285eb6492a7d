// SPDX-License-Identifier: Apache-2.0
// spec.activeDeadline: from placement to the end. Waiting in the queue and suspension do not count.
#include "common/base/duration.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool deadline(Planner& planner) {
  if (!planner.spec.active_deadline || !planner.status().start_time || !planner.status().placed())
    return false;
  const auto left = *planner.status().start_time + *planner.spec.active_deadline - planner.now();
  if (left > std::chrono::nanoseconds(0)) {
    planner.wake_after(left);
    return false;
  }
  planner.finish(false, "DeadlineExceeded",
                 "ran longer than spec.activeDeadline (" +
                     format_duration(*planner.spec.active_deadline) + ")");
  return true;
}

}  // namespace paceline::plan
