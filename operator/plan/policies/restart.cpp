// SPDX-License-Identifier: Apache-2.0
// Replaces pods. Survivors keep their pods and wait at the barrier. Only lost replicas get a new
// incarnation. The scheduler chooses its node, as for a new gang, and prefers the old one. Drain,
// eviction, deletion and lost nodes cost a disruption; a killed container costs one restart of
// failurePolicy.maxRestarts. Rules of failurePolicy may say otherwise (rules.cpp). A loss is one
// attempt, whether rank 0's launcher counts it (it sees the member leave) or the operator (it sees
// the pod leave). The loss of replicas that fail alone is no attempt: their launchers join the
// running one. Each of them is replaced when it can be, and waits for no other one.
#include <algorithm>
#include <optional>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kExclusionInterval = std::chrono::seconds(15);
constexpr auto kPodEnds = std::chrono::seconds(10);  // from the ranks' end to the pod's
constexpr auto kSchedulersLook = std::chrono::seconds(1);
// A pause that is longer by more than that means that the clock was set back.
constexpr auto kClocksDiffer = std::chrono::minutes(1);

struct Loss {
  std::vector<ReplicaState*> replicas;
  std::vector<const ReplicaState*> costly;     // the replicas whose loss costs a restart
  std::vector<const ReplicaState*> disrupted;  // those whose loss costs a disruption
  const ReplicaState* fatal = nullptr;         // a rule ends the job for its loss
  bool settled = true;                         // nothing more to wait for
};

/// The first replica that keeps the gang from gathering: its pod cannot start, or was not created
/// while the operator was away. Null: there is none.
const ReplicaState* blocked_replica(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const bool starts = starts_open(planner);
  const auto blocked = std::ranges::find_if(replicas, [&](const ReplicaState& state) {
    return is_blocked(state.judgement) || (starts && state.pod == nullptr);
  });
  return blocked == replicas.end() ? nullptr : &*blocked;
}

/// Replicas that fail alone and are absent although they are on record, since the API server
/// refused them. create_replacements tries them again.
bool is_refused(Planner& planner, const ReplicaState& state) {
  return planner.in.memory.refusal && replacing(planner) == status::kReplacing &&
         state.judgement.outcome == Outcome::kAbsent && fails_alone(planner.spec, state.replica);
}

/// Adds a lost replica, with what its loss costs: as the first matching rule of failurePolicy says,
/// else a restart if it `fails` by itself, and a disruption otherwise. An evaluator costs nothing
/// unless a rule names it.
void weigh(Planner& planner, ReplicaState& state, bool fails, Loss& loss) {
  using failure::Action;
  loss.replicas.push_back(&state);
  const bool sent_away = state.judgement.kind == "ReplaceNode";  // by its launcher's rule
  const auto rule = sent_away ? std::nullopt : rule_for(planner, state);
  if (!rule && is_evaluator(planner.spec, state.replica)) return;
  if (rule) state.judgement.message += ": " + rule->text;
  const Action action = rule        ? rule->action
                        : sent_away ? Action::kReplaceNode
                        : fails     ? Action::kRestartGang
                                    : Action::kIgnore;
  if (action == Action::kFailJob) {
    if (loss.fatal == nullptr) loss.fatal = &state;
  } else if (action == Action::kRestartGang || action == Action::kRestartRank) {
    loss.costly.push_back(&state);
  } else {
    loss.disrupted.push_back(&state);
    if (action == Action::kReplaceNode && state.pod != nullptr) exclude_node(planner, state);
  }
}

Loss losses(Planner& planner, std::vector<ReplicaState>& replicas) {
  Loss loss;
  const bool alone = trains_on(planner, replicas);
  const ReplicaState* blocked = blocked_replica(planner, replicas);
  for (ReplicaState& state : replicas) {
    if (alone && is_refused(planner, state)) continue;
    if (state.pod && is_paid_for(planner, state)) {
      planner.remove(*state.pod);  // again: the first request may have failed
      // A finalizer may keep it for long.
      if (state.pod->over()) {
        if (state.judgement.kind.empty()) state.judgement.kind = "Deleted";
        loss.replicas.push_back(&state);
      }
      continue;
    }
    if (alone && left_out(planner, state.replica)) {
      if (state.judgement.outcome != Outcome::kAbsent) continue;
      state.judgement.kind = "RuntimeChanged";
      state.judgement.message = "pod " + state.pod_name + " is missing, and the operator was " +
                                "upgraded since the job was placed: launchers of both releases " +
                                "cannot be in one gang, so the job goes on without it";
      continue;
    }
    switch (state.judgement.outcome) {
      case Outcome::kAbsent:
        if (state.predecessor_alive) break;  // it is created when that one has ended
        if (!planner.in.memory.gone.contains(state.pod_name)) {
          // the cache may lag; ask the API server before creating a second incarnation
          planner.out.check_gone.push_back(state.pod_name);
          loss.settled = false;
          break;
        }
        state.judgement.kind = "Deleted";
        state.judgement.message = "pod " + state.pod_name + " is gone";
        if (is_paid_for(planner, state)) {
          loss.replicas.push_back(&state);
        } else {
          weigh(planner, state, false, loss);
        }
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
        weigh(planner, state, true, loss);
        break;
      case Outcome::kLost: weigh(planner, state, false, loss); break;
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

/// Pods of a drained node end one after the other, and are one loss. One that takes longer than
/// its ranks may is another loss: the gang may do without it.
bool more_will_be_lost(Planner& planner, const std::vector<ReplicaState>& replicas,
                       WallTime since) {
  const auto left = since + planner.spec.failure_policy.grace_period + kPodEnds - planner.now();
  const bool more = left > std::chrono::nanoseconds(0) &&
                    std::ranges::any_of(replicas, [](const ReplicaState& state) {
                      return state.judgement.outcome == Outcome::kStopping;
                    });
  if (more) planner.wake_after(left);
  return more;
}

/// The number of the attempt after the loss, which is counted once: by rank 0's launcher if it
/// lives and has noticed, as it then reports the next number, else here. If the count is too low,
/// the launchers correct it, because they use the highest number that any of them knows.
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

/// How long to wait before the replica is replaced.
std::chrono::nanoseconds pause(const Planner& planner, const ReplicaState& state) {
  std::chrono::nanoseconds pause = planner.spec.failure_policy.backoff;
  // A replica that is lost again and again (its node evicts at once) is delayed from its third pod
  // on: 1, 2, 4 … 64 s.
  if (state.incarnation >= 2)
    pause = std::max<std::chrono::nanoseconds>(
        pause, std::chrono::seconds(1LL << std::min(state.incarnation - 2, 6)));
  return pause;
}

/// Whether the replica cannot be replaced yet, whatever its node. The loss was noticed at `since`;
/// another loss may have been noticed before this replica's last pod was created.
bool waits(Planner& planner, const ReplicaState& state, WallTime since) {
  if (state.pod) since = std::max(since, state.pod->created);
  const std::chrono::nanoseconds whole = pause(planner, state);
  std::chrono::nanoseconds left = since + whole - planner.now();
  if (left > whole + kClocksDiffer) left = {};
  if (left > std::chrono::nanoseconds(0)) planner.wake_after(left);
  return left > std::chrono::nanoseconds(0) || state.predecessor_alive;
}

/// The node that the scheduler chose; otherwise asks for one.
std::optional<std::string> new_node(Planner& planner, const ReplicaState& state) {
  if (planner.placed_by_other()) return "";
  const int rank = state.replica.node_rank;
  const auto chosen = planner.in.memory.replacement_nodes.find(rank);
  if (chosen != planner.in.memory.replacement_nodes.end() &&
      takes_new_pods(planner, chosen->second))
    return chosen->second;
  planner.out.find_nodes.push_back(rank);
  return std::nullopt;
}

/// No node takes any of the lost replicas. gangTimeout bounds the wait, unless the others train on.
/// True if the job gives up its placement.
bool wait_for_node(Planner& planner, std::string_view condition, WallTime since,
                   const std::string& what) {
  const bool alone = condition == status::kReplacing;
  const auto left = since + planner.spec.scheduling.gang_timeout - planner.now();
  const std::string& why = planner.in.memory.no_replacement_node;
  // A pod may take long to end: the scheduler looks first.
  if (left <= std::chrono::nanoseconds(0) && !alone && !why.empty()) {
    planner.unplace("NoReplacementNode", what + "; no node takes the replacement: " + why, true);
    return true;
  }
  // Before the scheduler has looked there is nothing to report.
  if (!why.empty())
    planner.set(condition, true, "WaitingForNode",
                what + "; no node takes the replacement: " + why);
  if (!alone) planner.wake_after(std::max<std::chrono::nanoseconds>(left, kSchedulersLook));
  // Exclusions end without an event. The last look is after the last one has ended.
  if (!excluded_nodes(planner.status(), planner.now() - 2 * kExclusionInterval).empty()) {
    planner.out.look_again = true;
    planner.wake_after(kExclusionInterval);
  }
  return false;
}

/// Puts the replacements on record before any pod is created: the next reader of the status creates
/// the same pods, not additional ones.
void replace(Planner& planner, const std::vector<ReplicaState*>& lost,
             const std::vector<std::string>& nodes) {
  if (nodes != planner.status().nodes())
    planner.status().placement_where = planner.in.memory.replacement_where;
  planner.status().set_nodes(nodes);
  for (const ReplicaState* state : lost) {
    const int incarnation = state->incarnation + 1;
    planner.set_incarnation(state->replica, incarnation);
    if (state->pod) planner.remove(*state->pod);
    // The trainer ended but a sidecar runs: wait until the whole pod is gone.
    if (state->pod && !state->pod->over()) continue;
    planner.out.creates.push_back({state->replica.node_rank, incarnation,
                                   nodes[static_cast<std::size_t>(state->replica.node_rank)],
                                   false});
  }
}

/// Of the job's time, rank 0's last words count if its pod is lost, else what it last told. Any
/// pod that was asked to end may tell of a checkpoint, which it saves after the loss was noticed.
void keep_last_words(Planner& planner, const Loss& loss, bool noticed_before) {
  if (const auto& summary = planner.in.memory.summary; summary && !noticed_before) {
    planner.keep_goodput(*summary, planner.in.memory.summary_at);
    planner.keep_checkpoint(*summary);
  }
  for (const ReplicaState* state : loss.replicas) {
    if (state->judgement.report)
      planner.keep_last_words(*state->judgement.report, state->replica.node_rank);
  }
}

void blame(Planner& planner, const ReplicaState& state) {
  nlohmann::json culprit = {{"pod", state.pod_name}, {"class", state.judgement.kind}};
  if (state.pod && state.pod->gang) culprit["exitCode"] = state.pod->gang->exit_code;
  if (const auto rule = rule_for(planner, state)) culprit["rule"] = rule->text;
  planner.status().culprit = std::move(culprit);
}

/// True if the job has failed: a rule says so, or no budget is left for the loss.
bool ends_the_job(Planner& planner, const Loss& loss) {
  if (loss.fatal != nullptr) {
    blame(planner, *loss.fatal);
    planner.finish(false, "FailureRule", loss.fatal->judgement.message);
    return true;
  }
  if (planner.in.memory.summary)
    planner.status().restarts =
        std::max(planner.status().restarts, planner.in.memory.summary->restarts);
  const int most = planner.spec.failure_policy.max_restarts;
  if (loss.costly.empty())
    return !loss.disrupted.empty() &&
           disruptions_exhausted(planner, loss.disrupted.front()->judgement.message);
  if (planner.status().restarts < most) return false;
  const ReplicaState& first = *loss.costly.front();
  blame(planner, first);
  planner.finish(false, "RestartsExhausted",
                 first.judgement.message + "; failurePolicy.maxRestarts (" + std::to_string(most) +
                     ") is spent");
  return true;
}

/// One loss is one restart or one disruption, however many replicas it takes.
void count_cost(Planner& planner, const Loss& loss) {
  const auto any_of = [&](const std::vector<const ReplicaState*>& states) {
    return std::ranges::any_of(states, [&](const ReplicaState* state) {
      return std::ranges::find(loss.replicas, state) != loss.replicas.end();
    });
  };
  if (any_of(loss.costly)) return void(++planner.status().restarts);
  if (any_of(loss.disrupted)) ++planner.status().disruptions;
}

}  // namespace

bool replace_lost(Planner& planner, std::vector<ReplicaState>& replicas) {
  Loss loss = losses(planner, replicas);
  if (loss.replicas.empty()) return !loss.settled;
  if (ends_the_job(planner, loss)) return true;
  const ReplicaState& first = loss.costly.empty() ? *loss.replicas.front() : *loss.costly.front();
  const bool gathers = gathers_without(planner, replicas);
  const bool alone = gathers || trains_on(planner, replicas);
  const std::string_view condition = alone ? status::kReplacing : status::kRestarting;
  const api::Condition* before = planner.status().find(condition);
  const bool already = before != nullptr && before->status == "True";
  planner.set(condition, true, first.judgement.kind, first.judgement.message);
  if (!alone) {
    planner.clear(status::kReplacing, first.judgement.kind, first.judgement.message);
    planner.clear(status::kRunning, first.judgement.kind, first.judgement.message);
  }
  keep_last_words(planner, loss, already);
  const WallTime since = already ? before->since : planner.now();
  if (!loss.settled || (!alone && more_will_be_lost(planner, replicas, since))) return true;
  const Loss whole = loss;
  std::vector<const ReplicaState*> left;  // not replaced now
  const auto leave = [&](const ReplicaState* state, bool leaves) {
    if (leaves) left.push_back(state);
    return leaves;
  };
  const auto incomplete = [&] {
    // Another scheduler binds them together.
    const bool may_lack = !planner.placed_by_other() && does_without(planner.spec, left);
    return loss.replicas.empty() || (!alone && !left.empty() && !may_lack);
  };
  std::erase_if(loss.replicas, [&](const ReplicaState* state) {
    return leave(state, waits(planner, *state, since));
  });
  if (incomplete()) return !gathers;
  if (planner.changed_contract()) {
    count_cost(planner, loss);
    return true;
  }
  std::vector<std::string> nodes = planner.status().nodes();
  std::erase_if(loss.replicas, [&](const ReplicaState* state) {
    auto node = new_node(planner, *state);
    if (node) nodes[static_cast<std::size_t>(state->replica.node_rank)] = std::move(*node);
    return leave(state, !node);
  });
  if (incomplete()) {
    if (!alone && vacate_for_host(planner, replicas)) return true;
    if (!alone && shrink(planner, nodes, first.judgement.message)) {
      count_cost(planner, whole);
      return true;
    }
    if (wait_for_node(planner, condition, since, first.judgement.message))
      count_cost(planner, whole);
    return !gathers;
  }
  planner.set(condition, true, "Replacing", first.judgement.message);
  // Alone, one that keeps its node on record for now is charged when it is replaced.
  Loss charged = whole;
  std::erase_if(charged.replicas, [&](const ReplicaState* state) {
    return alone && state->pod && std::ranges::find(left, state) != left.end();
  });
  count_cost(planner, charged);
  leave_for_later(planner, left, !alone, nodes);
  if (!alone) planner.status().attempt = next_attempt(planner, loss);
  replace(planner, loss.replicas, nodes);
  return true;
}

}  // namespace paceline::plan
