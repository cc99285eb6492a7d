// SPDX-License-Identifier: Apache-2.0
// spec.suspend: the job gives up its placement and its pods. It counts as suspended when the last
// pod is gone.
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool suspension(Planner& planner) {
  if (!planner.spec.suspend) {
    if (planner.status().is_true(status::kSuspended))
      planner.leave_out(planner.now() - planner.status().find(status::kSuspended)->since);
    planner.clear(status::kSuspended, "Resumed");
    return false;
  }
  planner.status().excluded_nodes.clear();  // resuming is a fresh try
  planner.unplace("Suspended", "spec.suspend is true", false);
  if (planner.any_live_pod()) {
    planner.set(status::kSuspended, false, "Stopping", "waits for its pods to stop");
  } else {
    planner.set(status::kSuspended, true, "Suspended", "spec.suspend is true");
  }
  return true;
}

}  // namespace paceline::plan
