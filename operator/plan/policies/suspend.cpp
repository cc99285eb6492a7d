// SPDX-License-Identifier: Apache-2.0
// spec.suspend: the job gives its place back and has no pods; when the last one has gone it counts
// as suspended.
#include "operator/plan/planner.hpp"

namespace paceline::plan {

bool suspension(Planner& planner) {
  if (!planner.spec.suspend) {
    planner.clear(status::kSuspended, "Resumed");
    return false;
  }
  planner.status().excluded_nodes.clear();  // whoever suspends and resumes asks for a fresh try
  planner.unplace("Suspended", "spec.suspend is true", false);
  if (planner.any_live_pod()) {
    planner.set(status::kSuspended, false, "Stopping", "waits for its pods to stop");
  } else {
    planner.set(status::kSuspended, true, "Suspended", "spec.suspend is true");
  }
  return true;
}

}  // namespace paceline::plan
