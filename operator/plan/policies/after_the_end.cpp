// SPDX-License-Identifier: Apache-2.0
// What happens to a finished job: cleanPodPolicy, then ttlAfterFinished. A finished job never starts anything again.
#include "operator/plan/planner.hpp"

namespace paceline::plan {

bool after_the_end(Planner& planner) {
  if (!planner.status().finished()) return false;
  const api::Spec& spec = planner.spec;
  switch (spec.clean_pod_policy) {
    case api::CleanPodPolicy::kNone:
      // Pods that end by the gang's own verdict stay; where the launchers do not know that it is over, nothing must go on.
      if (planner.status().is_true(status::kFailed) && !planner.status().is(status::kFailed, "RanksFailed"))
        planner.remove_running_pods();
      break;
    case api::CleanPodPolicy::kRunning: planner.remove_running_pods(); break;
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
  return true;
}

}  // namespace paceline::plan
