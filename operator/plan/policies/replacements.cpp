// SPDX-License-Identifier: Apache-2.0
// Replacements that are on record: they are created, and again if the API server refused them. None
// is created while its predecessor may still run.
#include <algorithm>
#include <iterator>

#include "common/contract/injection.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

/// A replacement that the API server refused (a full quota, a policy) is tried again: a new gang
/// would be refused, too. True while that waits, for gangTimeout unless the others train on.
bool refused(Planner& planner, std::string_view condition) {
  const std::optional<Waiting>& refusal = planner.in.memory.refusal;
  if (!refusal) return false;
  const std::string message = "the replacement was refused: " + refusal->message;
  const auto left = planner.status().find(condition)->since + planner.spec.scheduling.gang_timeout -
                    planner.now();
  const bool bounded = condition == status::kRestarting;
  if (bounded && left <= std::chrono::nanoseconds(0)) {
    planner.unplace(refusal->reason, message, true);
    return true;
  }
  planner.set(condition, true, "Replacing", message);
  const auto pause = planner.in.memory.retry_at - planner.now();
  if (pause <= std::chrono::nanoseconds(0) || pause > kLongestBackOff) return false;
  planner.wake_after(bounded ? std::min<std::chrono::nanoseconds>(left, pause) : pause);
  return true;
}

/// The replicas whose replacement is on record. A replica that fails alone may be absent for
/// another reason: it was lost, and waits for a node.
std::vector<ReplicaState> on_record(Planner& planner, const std::vector<ReplicaState>& replicas,
                                    std::string_view condition) {
  if (condition != status::kReplacing && planner.spec.failure_policy.spares == 0) return replicas;
  std::vector<ReplicaState> found;
  std::ranges::copy_if(replicas, std::back_inserter(found), [&](const ReplicaState& state) {
    return state.pod == nullptr && !state.predecessor_alive &&
           (planner.placed_by_other() || takes_new_pods(planner, state.node)) &&
           !planner.in.memory.gone.contains(state.pod_name) && !left_out(planner, state.replica);
  });
  return found;
}

}  // namespace

std::string_view replacing(Planner& planner) {
  for (const std::string_view type : {status::kRestarting, status::kReplacing}) {
    if (planner.status().is_true(type) && planner.status().is(type, "Replacing")) return type;
  }
  return {};
}

bool left_out(const Planner& planner, const api::Replica& replica) {
  return planner.out.status.contract != contract::kRuntimeContract &&
         (is_evaluator(planner.spec, replica) ||
          planner.spec.roles[static_cast<std::size_t>(replica.role)].spares > 0);
}

bool create_replacements(Planner& planner, const std::vector<ReplicaState>& replicas) {
  std::string_view condition = replacing(planner);
  if (condition.empty()) return false;
  if (condition == status::kReplacing && !trains_on(planner, replicas)) {
    // The others have stopped meanwhile: gangTimeout bounds what is left to wait.
    const std::string message = planner.status().find(condition)->message;
    planner.clear(status::kReplacing, "Replacing", message);
    condition = status::kRestarting;
    planner.set(condition, true, "Replacing", message);
  }
  // The others may lose more replicas, which do not wait for this one.
  if (refused(planner, condition)) return condition == status::kRestarting;
  const bool missing = create_missing(planner, on_record(planner, replicas, condition), false);
  const bool one_waits = std::ranges::any_of(replicas, [](const ReplicaState& state) {
    return state.pod == nullptr && state.predecessor_alive;
  });
  if (!missing && !one_waits)
    planner.set(condition, true, "PodsStarting", planner.status().find(condition)->message);
  return missing;
}

}  // namespace paceline::plan
