// SPDX-License-Identifier: Apache-2.0
// Launchers of two releases that were placed in one gang: agents are upgraded node by node, and
// each offers its own runtime. The gang is placed again, without slots of the agents, so that its
// pods copy one runtime. A replica that came later, while the others train, is replaced.
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

bool mixed_releases(Planner& planner, std::vector<ReplicaState>& replicas) {
  const bool others_train = trains_on(planner, replicas);
  const int first_pods = replicas.front().incarnation;
  for (ReplicaState& state : replicas) {
    if (state.judgement.outcome != Outcome::kMixed) continue;
    if (!others_train || state.incarnation == first_pods) {
      planner.unplace("RuntimeChanged", state.judgement.message + "; the job starts again", true);
      return true;
    }
    state.judgement.outcome = Outcome::kLost;
  }
  return false;
}

}  // namespace paceline::plan
