// SPDX-License-Identifier: Apache-2.0
// failurePolicy.maxDisruptions: how often the job may lose pods to causes outside itself. Without
// it there is no limit: on preemptible nodes a healthy job of weeks is disrupted hundreds of times.
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool disruptions_exhausted(Planner& planner, const std::string& what) {
  const auto& most = planner.spec.failure_policy.max_disruptions;
  if (!most || planner.status().disruptions < *most) return false;
  planner.finish(false, "DisruptionsExhausted",
                 what + "; failurePolicy.maxDisruptions (" + std::to_string(*most) + ") is spent");
  return true;
}

}  // namespace paceline::plan
