// SPDX-License-Identifier: Apache-2.0
// Replaces pods. Survivors keep their pods and wait at the barrier. Only lost replicas get a new
// incarnation. The scheduler chooses its node, as for a new gang, and prefers the old one. Drain,
// eviction, deletion and lost nodes cost nothing; a killed container costs one restart of
// failurePolicy.maxRestarts. A loss is one attempt, whether rank 0's launcher counts it (it sees
// the member leave) or the operator (it sees the pod leave). The loss of replicas that fail alone
// is no attempt: their launchers join the running one.
#include <algorithm>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

struct Loss {
  std::vector<ReplicaState*> replicas;
  const ReplicaState* culprit = nullptr;  // the first replica whose loss costs a restart
  bool settled = true;                    // nothing more to wait for
};

/// The first replica that keeps the gang from gathering: its pod cannot start, or was not created
/// while the operator was away. Null: there is none.
const ReplicaState* blocked_replica(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const bool starts = planner.status().is(status::kPlaced, "Starting");
  const auto blocked = std::ranges::find_if(replicas, [&](const ReplicaState& state) {
    return is_blocked(state.judgement) || (starts && state.pod == nullptr);
  });
  return blocked == replicas.end() ? nullptr : &*blocked;
}

bool is_evaluator(const api::Spec& spec, const api::Replica& replica) {
  return spec.roles[static_cast<std::size_t>(replica.role)].kind == api::RoleKind::kEvaluator;
}

Loss losses(Planner& planner, std::vector<ReplicaState>& replicas) {
  Loss loss;
  const ReplicaState* blocked = blocked_replica(planner, replicas);
  for (ReplicaState& state : replicas) {
    switch (state.judgement.outcome) {
      case Outcome::kAbsent:
        if (!planner.in.memory.gone.contains(state.pod_name)) {
          // the cache may lag; ask the API server before creating a second incarnation
          planner.out.check_gone.push_back(state.pod_name);
          loss.settled = false;
          break;
        }
        state.judgement.kind = "Deleted";
        state.judgement.message = "pod " + state.pod_name + " is gone";
        loss.replicas.push_back(&state);
        break;
      case Outcome::kKilled:
        // The gang could not gather because one pod has no image, or does not exist: no restart is
        // spent on that.
        if (blocked != nullptr && state.judgement.kind == "RendezvousTimeout") {
          state.judgement.kind = blocked->judgement.kind;
          state.judgement.message = blocked->pod != nullptr
                                        ? blocked->judgement.message
                                        : "pod " + blocked->pod_name + " did not exist yet";
          loss.replicas.push_back(&state);
          break;
        }
        // An evaluator never costs the training anything.
        if (loss.culprit == nullptr && !is_evaluator(planner.spec, state.replica))
          loss.culprit = &state;
        [[fallthrough]];
      case Outcome::kLost: loss.replicas.push_back(&state); break;
      default: break;
    }
    if (state.judgement.report) {
      planner.status().attempt =
          std::max(planner.status().attempt, state.judgement.report->attempt);
      planner.status().restarts =
          std::max(planner.status().restarts, state.judgement.report->restarts);
    }
  }
  return loss;
}

/// The number of the attempt after the loss, which is counted once. If rank 0's launcher lives and
/// has noticed, it counts: it is between two attempts and reports the next number. Otherwise the
/// operator counts. If the count is too low, the launchers correct it, because they use the highest
/// number that any of them knows.
int next_attempt(const Planner& planner, const Loss& loss) {
  const std::optional<status::Report>& summary = planner.in.memory.summary;
  const int known = planner.out.status.attempt;
  const bool counter_lost =
      std::any_of(loss.replicas.begin(), loss.replicas.end(),
                  [](const ReplicaState* s) { return s->replica.node_rank == 0; });
  if (!summary || counter_lost) return std::max(known, summary ? summary->attempt : 0) + 1;
  if (summary->phase != "Running" && summary->attempt >= known) return summary->attempt;
  return std::max(known, summary->attempt) + 1;
}

std::chrono::nanoseconds pause(const Planner& planner, const Loss& loss) {
  std::chrono::nanoseconds longest = planner.spec.failure_policy.backoff;
  for (const ReplicaState* state : loss.replicas) {
    // A replica that is lost again and again (its node evicts at once) is delayed from its third
    // pod on: 1, 2, 4 … 64 s.
    if (state->incarnation >= 2)
      longest = std::max<std::chrono::nanoseconds>(
          longest, std::chrono::seconds(1LL << std::min(state->incarnation - 2, 6)));
  }
  return longest;
}

bool usable(const Planner& planner, const std::string& node) {
  const auto view = planner.in.node(node);
  return view != nullptr && view->ready && !view->unschedulable;
}

/// The node of every replica, with the scheduler's choice for each lost one; empty while one of
/// them has none.
std::vector<std::string> new_nodes(Planner& planner, const Loss& loss) {
  std::vector<std::string> nodes = planner.status().nodes();
  bool complete = true;
  for (const ReplicaState* state : loss.replicas) {
    const int rank = state->replica.node_rank;
    const auto chosen = planner.in.memory.replacement_nodes.find(rank);
    if (chosen != planner.in.memory.replacement_nodes.end() && usable(planner, chosen->second)) {
      nodes[static_cast<std::size_t>(rank)] = chosen->second;
    } else {
      planner.out.find_nodes.push_back(rank);
      complete = false;
    }
  }
  return complete ? nodes : std::vector<std::string>();
}

/// The condition that tells of replacements on record which do not exist yet; empty if there are
/// none.
std::string_view replacing(Planner& planner) {
  for (const std::string_view type : {status::kRestarting, status::kReplacing}) {
    if (planner.status().is_true(type) && planner.status().is(type, "Replacing")) return type;
  }
  return {};
}

/// A replacement that the API server refused (a full quota, a policy) is tried again, because
/// rebuilding the gang would meet the same refusal. True while the policy waits. gangTimeout bounds
/// that, unless the others train on.
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

}  // namespace

bool create_replacements(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const std::string_view condition = replacing(planner);
  if (condition.empty()) return false;
  if (refused(planner, condition)) return true;
  const bool missing = create_missing(planner, replicas, false);
  if (!missing)
    planner.set(condition, true, "PodsStarting", planner.status().find(condition)->message);
  return missing;
}

bool replace_lost(Planner& planner, std::vector<ReplicaState>& replicas) {
  const Loss loss = losses(planner, replicas);
  if (loss.replicas.empty()) return !loss.settled;
  const ReplicaState& first = loss.culprit != nullptr ? *loss.culprit : *loss.replicas.front();
  const int cost = loss.culprit != nullptr ? 1 : 0;
  if (planner.in.memory.summary)
    planner.status().restarts =
        std::max(planner.status().restarts, planner.in.memory.summary->restarts);
  if (planner.status().restarts + cost > planner.spec.failure_policy.max_restarts && cost > 0) {
    nlohmann::json culprit = {{"pod", first.pod_name}, {"class", first.judgement.kind}};
    if (first.pod && first.pod->gang) culprit["exitCode"] = first.pod->gang->exit_code;
    planner.status().culprit = std::move(culprit);
    planner.finish(false, "RestartsExhausted",
                   first.judgement.message + "; failurePolicy.maxRestarts (" +
                       std::to_string(planner.spec.failure_policy.max_restarts) + ") is spent");
    return true;
  }
  const bool alone = trains_on(planner, replicas);
  const std::string_view condition = alone ? status::kReplacing : status::kRestarting;
  const api::Condition* before = planner.status().find(condition);
  const bool already = before != nullptr && before->status == "True";
  planner.set(condition, true, first.judgement.kind, first.judgement.message);
  if (!alone) {
    planner.clear(status::kReplacing, first.judgement.kind, first.judgement.message);
    planner.clear(status::kRunning, first.judgement.kind, first.judgement.message);
  }
  const WallTime since = already ? before->since : planner.now();
  if (!loss.settled) return true;
  if (const auto left = since + pause(planner, loss) - planner.now();
      left > std::chrono::nanoseconds(0)) {
    planner.wake_after(left);
    return true;
  }
  if (std::any_of(loss.replicas.begin(), loss.replicas.end(),
                  [](const ReplicaState* s) { return s->predecessor_alive; }))
    return true;
  if (planner.changed_contract()) {
    planner.status().restarts += cost;
    return true;
  }
  const std::vector<std::string> nodes = new_nodes(planner, loss);
  if (nodes.empty()) {
    const auto left = since + planner.spec.scheduling.gang_timeout - planner.now();
    const std::string& why = planner.in.memory.no_replacement_node;
    if (left <= std::chrono::nanoseconds(0) && !alone) {
      planner.unplace("NoReplacementNode",
                      first.judgement.message + "; no node takes the replacement: " + why, true);
      return true;
    }
    // Before the scheduler has looked there is nothing to report.
    if (!why.empty())
      planner.set(condition, true, "WaitingForNode",
                  first.judgement.message + "; no node takes the replacement: " + why);
    if (!alone) planner.wake_after(left);
    return true;
  }
  // Recorded before any pod is created: the next reader of the status creates the same pods, not
  // additional ones.
  planner.set(condition, true, "Replacing", first.judgement.message);
  planner.status().set_nodes(nodes);
  planner.status().restarts += cost;
  if (!alone) planner.status().attempt = next_attempt(planner, loss);
  for (const ReplicaState* state : loss.replicas) {
    const int incarnation = state->incarnation + 1;
    planner.set_incarnation(state->replica, incarnation);
    if (state->pod) planner.remove(*state->pod);
    // The trainer ended but a sidecar runs: wait until the whole pod is gone.
    if (state->pod && !state->pod->terminal()) continue;
    planner.out.creates.push_back({state->replica.node_rank, incarnation,
                                   nodes[static_cast<std::size_t>(state->replica.node_rank)],
                                   false});
  }
  return true;
}

}  // namespace paceline::plan
