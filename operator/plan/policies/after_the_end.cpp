// SPDX-License-Identifier: Apache-2.0
// What happens to a finished job: cleanPodPolicy, then ttlAfterFinished. A finished job never
// starts anything again.
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

// on top of the ranks' grace period, as in terminationGracePeriodSeconds
constexpr auto kLeave = std::chrono::seconds(10);

/// Pods end on the gang's verdict by themselves, and stay for their logs. A pod that still runs
/// after that time never received the verdict (a late replacement would wait for its gang for
/// ever), so it is deleted.
void remove_stragglers(Planner& planner) {
  const auto left = planner.status().completion_time.value_or(WallTime{}) +
                    planner.spec.failure_policy.grace_period + kLeave - planner.now();
  for (const auto& pod : planner.in.pods) {
    if (!is_live(*pod)) continue;
    if (left > std::chrono::nanoseconds(0)) return planner.wake_after(left);
    planner.remove_unended(*pod);
  }
}

}  // namespace

void after_the_end(Planner& planner) {
  if (!planner.status().finished()) return;
  const api::Spec& spec = planner.spec;
  const bool success = planner.status().is_true(status::kSucceeded);
  const bool gang_knows = success || planner.status().is(status::kFailed, "RanksFailed");
  switch (spec.clean_pod_policy) {
    case api::CleanPodPolicy::kNone:
      if (gang_knows) {
        remove_stragglers(planner);
      } else {
        planner.remove_running_pods();
      }
      break;
    case api::CleanPodPolicy::kRunning:
      for (const auto& pod : planner.in.pods) {
        if (!success || !is_live(*pod)) planner.remove_unended(*pod);
      }
      if (success) remove_stragglers(planner);
      break;
    case api::CleanPodPolicy::kAll:
      for (const auto& pod : planner.in.pods) planner.remove(*pod);
      break;
  }
  if (spec.ttl_after_finished && planner.status().completion_time) {
    const auto left = *planner.status().completion_time + *spec.ttl_after_finished - planner.now();
    if (left <= std::chrono::nanoseconds(0)) {
      planner.out.delete_job = true;
    } else {
      planner.wake_after(left);
    }
  }
}

}  // namespace paceline::plan
