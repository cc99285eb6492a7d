// SPDX-License-Identifier: Apache-2.0
// failurePolicy.rules about a pod that ended or was lost. A rank that fails in its pod is the
// launcher's concern: it has applied the rules before its pod ends.
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {

std::optional<failure::Decision> rule_for(const Planner& planner, const ReplicaState& state) {
  const std::vector<failure::Rule>& rules = planner.spec.failure_policy.rules;
  if (rules.empty()) return std::nullopt;
  const api::Role& role = planner.spec.roles[static_cast<std::size_t>(state.replica.role)];
  const auto node = planner.in.node(state.node);
  failure::Facts facts{.role = role.name,
                       .evaluator = role.kind == api::RoleKind::kEvaluator,
                       .reasons = {state.judgement.kind}};
  if (node != nullptr) facts.node_conditions = &node->conditions;
  if (state.pod != nullptr && state.pod->gang) {
    const observe::GangMember& gang = *state.pod->gang;
    facts.pod_conditions = &gang.conditions;
    // How the container of a pod ends that is stopped from outside says nothing of the job.
    const bool stopped = state.judgement.outcome == Outcome::kLost;
    if (!stopped) facts.reasons.emplace_back(gang.reason);
    // With a report the code is the launcher's own, and says nothing of the program.
    if (!stopped && gang.trainer == observe::TrainerState::kTerminated && !state.judgement.report)
      facts.exit_code = gang.exit_code;
  }
  return failure::decide(rules, facts);
}

}  // namespace paceline::plan
