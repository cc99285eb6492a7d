// SPDX-License-Identifier: Apache-2.0
// spec.suspend: the job gives up its placement and its pods. It counts as suspended when the last
// pod is gone.
#include "operator/api/fingerprint.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool spec_changed(const Planner& planner) {
  const std::string& placed = planner.out.status.placed_spec;
  return planner.out.status.placed() && !placed.empty() && placed != planner.in.job.fingerprint &&
         !api::is_former_fingerprint(placed, planner.spec);
}

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
