// SPDX-License-Identifier: Apache-2.0
// The gang starts as a set. The condition Placed records the stage.
//
// If something may hold back a part of the gang (Observed::gated), all pods are created pinned and
// gated. When the last one exists, all gates open. The stages are Creating, Ungated and Bound.
//
// Otherwise gates would only double the writes: all pods are created pinned and open. The stages
// are Starting and Bound. The launchers' barrier keeps a part of the gang from training.
//
// If a pod is refused, or the set is not bound within gangTimeout, all of it is removed. While the
// gang trains, a replica that fails alone is bound or removed by itself.
#include <algorithm>

#include "common/base/duration.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

/// True if the missing pods of an open gang were lost. A lost pod gets a new incarnation, and the
/// scheduler finds a node for it. A pod that was not created yet keeps its own. A pod that was
/// deleted early cannot be told from that one, and is created again under its name.
bool has_losses(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (planner.status().is_true(status::kRestarting)) return true;
  const bool any_node = planner.placed_by_other();
  return std::ranges::any_of(replicas, [&](const ReplicaState& state) {
    if (state.pod != nullptr) return !is_live(*state.pod);
    return !any_node && planner.in.node(state.node) == nullptr;
  });
}

bool is_unbound(const ReplicaState& state) {
  return state.pod != nullptr && state.pod->node.empty() && is_live(*state.pod) &&
         !state.pod->deleting;
}

std::string not_bound(const Planner& planner, const ReplicaState& state) {
  std::string message = "pod " + state.pod->meta.name + " was not bound within " +
                        format_duration(planner.spec.scheduling.gang_timeout);
  if (!state.judgement.message.empty()) message += ": " + state.judgement.message;
  return message;
}

std::string placed_together(Planner& planner, std::size_t pods) {
  const std::string& where = planner.status().placement_where;
  return std::to_string(pods) + " pods placed together" + (where.empty() ? "" : ": " + where);
}

/// Scheduler messages that differ in the number of nodes have one reason.
std::string without_numbers(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

/// Takes the placement back. The gang is queued again, unless the scheduler gave the same reason
/// the last time: the planner does not see what the scheduler sees, and would choose alike.
void unplace_unbound(Planner& planner, const ReplicaState& unbound) {
  const Memory& memory = planner.in.memory;
  BindRefusal refusal;
  if (unbound.pod->gang && unbound.pod->gang->reason == "Unschedulable")
    refusal.reason = without_numbers(unbound.pod->gang->message);
  refusal.generation = planner.in.job.job.metadata.generation;
  std::string message = not_bound(planner, unbound);
  const bool twice = !refusal.reason.empty() && refusal.reason == memory.bind_refusal.reason &&
                     refusal.generation == memory.bind_refusal.generation;
  if (twice) {
    refusal.until = planner.now() + kBindPause;
    message = "the scheduler refused two placements for one reason, so the next try is in " +
              format_duration(kBindPause) +
              ", or when the job is suspended and resumed: " + message;
  }
  planner.unplace(twice ? "SchedulerRefuses" : "BindTimeout", message, true);
  planner.out.bind_refusal = std::move(refusal);
}

/// A pod that was never on a node goes at once. If one is over and goes on being deleted, a
/// finalizer keeps its name, so the gang gets others.
bool gives_up_a_name(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const auto kept = std::ranges::find_if(replicas, [](const ReplicaState& state) {
    return state.pod != nullptr && state.pod->over() && state.pod->deleting;
  });
  if (kept == replicas.end()) return false;
  planner.unplace(
      "CreateRefused",
      "pod " + kept->pod_name + " ended or was deleted before it started, and a finalizer keeps it",
      true);
  return true;
}

/// The others train. So a replacement that is not bound in time is removed, and gets another node.
/// It has never run, and the loss before it is charged: without a node on record it costs nothing.
bool bind_replacements(Planner& planner, const std::vector<ReplicaState>& replicas) {
  std::vector<std::string> nodes = planner.status().nodes();
  bool removed = false;
  for (const ReplicaState& state : replicas) {
    if (!is_unbound(state)) continue;
    const auto left = state.pod->created + planner.spec.scheduling.gang_timeout - planner.now();
    if (left > std::chrono::nanoseconds(0)) {
      planner.wake_after(left);
      continue;
    }
    planner.set(status::kReplacing, true, "BindTimeout", not_bound(planner, state));
    planner.remove(*state.pod);
    nodes[static_cast<std::size_t>(state.replica.node_rank)] = "";
    removed = true;
  }
  if (removed) planner.status().set_nodes(nodes);
  return removed;
}

}  // namespace

bool starts_open(const Planner& planner) {
  const api::JobStatus& status = planner.out.status;
  return status.is(status::kPlaced, "Starting") ||
         status.is(status::kPlaced, "WaitingForScheduler");
}

bool create_missing(Planner& planner, const std::vector<ReplicaState>& replicas, bool gated) {
  if (std::ranges::all_of(replicas, [](const auto& state) { return state.pod != nullptr; }))
    return false;
  if (planner.changed_contract()) return true;
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr && !state.predecessor_alive)
      planner.out.creates.push_back({state.replica.node_rank, state.incarnation,
                                     planner.placed_by_other() ? "" : state.node, gated});
  }
  return true;
}

void pods_start(Planner& planner, std::size_t pods) {
  planner.set(status::kRunning, false, "PodsStarting",
              "0 of " + std::to_string(pods) + " pods run");
  planner.status().pod_counts = api::PodCounts{0, static_cast<int>(pods)};
}

bool create_gang(Planner& planner, std::vector<ReplicaState>& replicas) {
  if (starts_open(planner))
    return !has_losses(planner, replicas) && create_missing(planner, replicas, false);
  if (planner.status().is(status::kPlaced, "Creating")) {
    if (gives_up_a_name(planner, replicas)) return true;
    bool complete = !create_missing(planner, replicas, true);
    for (ReplicaState& state : replicas) {
      if (state.judgement.outcome == Outcome::kGated) continue;
      complete = false;
      // a gated pod that failed never ran, so its name may be used again once it is gone
      if (state.pod != nullptr && !is_live(*state.pod)) planner.remove(*state.pod);
    }
    if (!complete) return true;
    planner.set(status::kPlaced, true, "Ungated", placed_together(planner, replicas.size()));
  }
  for (const ReplicaState& state : replicas) {
    if (state.judgement.outcome == Outcome::kGated)
      planner.out.ungates.push_back({state.pod->meta.name, state.pod->meta.uid,
                                     state.pod->gang->other_gates,
                                     state.pod->meta.resource_version});
  }
  if (planner.out.ungates.empty()) return false;
  pods_start(planner, replicas.size());
  return true;
}

bool bind_gang(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (trains_on(planner, replicas)) {
    if (!planner.placed_by_other()) return bind_replacements(planner, replicas);
    // The other scheduler's queue decides when a replacement is bound.
    note_nodes(planner, replicas);
    return ask_again(planner, replicas);
  }
  WallTime newest{};
  const ReplicaState* unbound = nullptr;
  bool missing = false;
  for (const ReplicaState& state : replicas) {
    missing = missing || state.pod == nullptr;
    if (state.pod == nullptr) continue;
    newest = std::max(newest, state.pod->created);
    if (is_unbound(state)) unbound = &state;
  }
  if (unbound == nullptr) {
    const bool starts = planner.status().is(status::kPlaced, "Ungated") || starts_open(planner);
    if (starts && !missing) {
      planner.set(status::kPlaced, true, "Bound", placed_together(planner, replicas.size()));
    }
    note_nodes(planner, replicas);
    return false;
  }
  if (waits_for_other(planner, replicas)) return ask_again(planner, replicas);
  if (planner.placed_by_other())
    newest = std::max(newest, planner.status().find(status::kPlaced)->since);
  const auto left = newest + planner.spec.scheduling.gang_timeout - planner.now();
  if (left > std::chrono::nanoseconds(0)) {
    planner.wake_after(left);
    return false;
  }
  unplace_unbound(planner, *unbound);
  return true;
}

}  // namespace paceline::plan
