// SPDX-License-Identifier: Apache-2.0
// A complete gang: starting, running, or restarting in place. Also writes what its launchers
// measure, at most once a minute unless something changes.
#include <algorithm>

#include "operator/api/template/containers.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kTrainingInterval = std::chrono::seconds(60);
// The first of them is told at once. Those that come and go with every look cost a write a minute.
constexpr auto kFindingInterval = std::chrono::seconds(60);

void report(Planner& planner, const status::Report& summary) {
  const bool counted =
      summary.attempt > planner.status().attempt || summary.restarts > planner.status().restarts;
  planner.status().attempt = std::max(planner.status().attempt, summary.attempt);
  planner.status().restarts = std::max(planner.status().restarts, summary.restarts);
  if (!summary.culprit.is_null() && counted) planner.status().culprit = summary.culprit;
  planner.keep_checkpoint(summary);
  const Memory& memory = planner.in.memory;
  api::JobStatus& shown = planner.status();
  // While no step ends, only the seconds in a finding's text and in the goodput change.
  const bool moved = !summary.training.is_null() && summary.training != shown.training;
  // A write that lies ahead means that the clock was set back.
  const bool due = planner.now() - memory.training_written >= kTrainingInterval ||
                   memory.training_written > planner.now();
  const bool found = status::other_findings(shown.findings, summary.findings) &&
                     planner.now() - memory.findings_written >= kFindingInterval;
  if (!counted && !found && !(due && moved) && !status::notable(shown.training, summary.training))
    return;
  // Together, since each write puts off the next one.
  shown.findings = summary.findings;
  if (!summary.training.is_null()) shown.training = summary.training;
  planner.keep_goodput(summary, memory.summary_at);
  if (!summary.effects.is_null() && shown.acceleration) shown.effects = summary.effects;
}

/// Whether the launchers start all ranks anew in the pods that are there.
void report_restart(Planner& planner, const char* what, const std::string& share) {
  const auto& summary = planner.in.memory.summary;
  if (summary && summary->phase == "Restarting") {
    planner.set(status::kRestarting, true, "RankFailed", what);
  } else {
    planner.clear(status::kRestarting, "Running", share);
  }
}

/// Replicas that fail alone are on their way, and the others train.
void report_replacing(Planner& planner, const std::vector<ReplicaState>& replicas,
                      const std::string& share) {
  planner.set(status::kRunning, true, "PodsRunning", share);
  // The reason says that replacements are on record, which the API server has refused so far.
  if (planner.status().is_true(status::kReplacing) &&
      planner.status().is(status::kReplacing, "Replacing"))
    return;
  for (const ReplicaState& state : replicas) {
    const Judgement& judgement = state.judgement;
    if (judgement.outcome == Outcome::kRunning || judgement.outcome == Outcome::kSucceeded)
      continue;
    const bool stops = judgement.outcome == Outcome::kStopping;
    planner.set(status::kReplacing, true,
                stops                    ? "PodStopping"
                : judgement.kind.empty() ? "PodsStarting"
                                         : judgement.kind,
                judgement.message.empty() ? share : judgement.message);
    return;
  }
}

}  // namespace

void report_training(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (planner.in.memory.summary && replicas.front().judgement.outcome == Outcome::kRunning)
    report(planner, *planner.in.memory.summary);
  if (planner.spec.failure_policy.spares > 0 && trains_on(planner, replicas) &&
      !std::ranges::all_of(replicas, is_present))
    report_restart(planner, "a replica was lost; a spare takes its place, and all ranks restart",
                   "a spare has taken the place of the replica that was lost");
}

void report_if_it_trains(Planner& planner, const std::vector<ReplicaState>& replicas) {
  note_stand_ins(planner, replicas);
  if (trains_on(planner, replicas)) report_training(planner, replicas);
}

void report_progress(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const auto running = std::count_if(replicas.begin(), replicas.end(), [](const ReplicaState& s) {
    return s.judgement.outcome == Outcome::kRunning;
  });
  const auto ended = std::count_if(replicas.begin(), replicas.end(), [](const ReplicaState& s) {
    return s.judgement.outcome == Outcome::kSucceeded;
  });
  const std::string share =
      std::to_string(running) + " of " + std::to_string(replicas.size()) + " pods run";
  report_training(planner, replicas);
  if (static_cast<std::size_t>(running + ended) == replicas.size()) {
    const auto& summary = planner.in.memory.summary;
    report_restart(planner, "a rank failed; all ranks restart in their pods", share);
    planner.clear(status::kReplacing, "Running", share);
    planner.set(status::kRunning, true, "PodsRunning", share);
    // Ranks start only after every pod has passed the preflight.
    if (api::requires_gpu_direct(planner.spec) && summary && summary->phase == "Running")
      planner.set(status::kPreflightPassed, true, "Proved",
                  "GPUDirect RDMA works in every pod that has GPUs");
    return;
  }
  if (trains_on(planner, replicas)) return report_replacing(planner, replicas, share);
  if (planner.status().is_true(status::kReplacing) && !gathers_without(planner, replicas)) {
    planner.clear(status::kReplacing, "RankFailed");
    planner.set(status::kRestarting, true, "RankFailed",
                "a rank failed while pods were replaced; all ranks restart");
  }
  // A pod that cannot start comes before those that only have not started yet.
  const auto blocked = std::ranges::find_if(
      replicas, [](const ReplicaState& state) { return is_blocked(state.judgement); });
  if (blocked != replicas.end()) {
    const std::string& kind = blocked->judgement.kind;
    const std::string message = share + "; " + blocked->judgement.message;
    planner.set(status::kRunning, false, kind, message);
    // The status shows why a gang restarts. What holds it up is now the image, not the loss.
    if (planner.status().is_true(status::kRestarting))
      planner.set(status::kRestarting, true, kind, message);
    return;
  }
  for (const ReplicaState& state : replicas) {
    if (state.judgement.outcome == Outcome::kStopping)
      planner.set(status::kRestarting, true, "PodStopping", state.judgement.message);
    if (state.judgement.message.empty()) continue;
    planner.set(status::kRunning, false,
                state.judgement.kind.empty() ? "PodsStarting" : state.judgement.kind,
                share + "; " + state.judgement.message);
    return;
  }
  planner.set(status::kRunning, false, "PodsStarting", share);
}

}  // namespace paceline::plan
