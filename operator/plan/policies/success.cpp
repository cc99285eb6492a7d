// SPDX-License-Identifier: Apache-2.0
// The end of the job, as rank 0's launcher decided it for the whole gang. AllRanks: launchers exit 0 only on the gang's verdict, so one success and nobody
// left running is the job's success, even if another pod was lost on its way out. RankZero: node rank 0's success is the job's at once.
#include <algorithm>

#include "operator/plan/planner.hpp"

namespace paceline::plan {
namespace {

void count(Planner& planner, const std::vector<ReplicaState>& replicas) {
  for (api::RoleStatus& role : planner.status().roles) role.ready = role.succeeded = role.failed = 0;
  int ready = 0;
  for (const ReplicaState& state : replicas) {
    api::RoleStatus& role = planner.status().roles[static_cast<std::size_t>(state.replica.role)];
    const Outcome outcome = state.judgement.outcome;
    if (outcome == Outcome::kRunning) ++role.ready, ++ready;
    if (outcome == Outcome::kSucceeded) ++role.succeeded;
    if (outcome == Outcome::kJobFailed || outcome == Outcome::kBadContract || outcome == Outcome::kKilled)
      ++role.failed;
  }
  planner.status().ready = std::to_string(ready) + "/" + std::to_string(replicas.size());
}

void fail_job(Planner& planner, const ReplicaState& state) {
  const bool contract = state.judgement.outcome == Outcome::kBadContract;
  std::string message = state.judgement.message;
  if (const auto& report = state.judgement.report) planner.absorb(*report);
  if (planner.status().culprit.is_null())
    planner.status().culprit = {{"pod", state.pod->meta.name}, {"exitCode", state.pod->gang->exit_code}};
  if (message.empty()) {
    const nlohmann::json& culprit = planner.status().culprit;
    message = "pod " + culprit.value("pod", state.pod->meta.name);
    if (culprit.contains("rank")) message = "rank " + culprit["rank"].dump() + " (" + message + ")";
    if (culprit.contains("exitCode")) message += " ended with exit code " + culprit["exitCode"].dump();
    if (culprit.contains("signal")) message += " ended by signal " + culprit["signal"].dump();
    if (culprit.contains("class")) message += ", " + culprit["class"].get<std::string>();
  }
  planner.finish(false, contract ? "BadContract" : "RanksFailed", message);
}

}  // namespace

bool job_verdict(Planner& planner, const std::vector<ReplicaState>& replicas) {
  count(planner, replicas);
  // The launcher that knows the culprit says so; take its word before others'.
  const ReplicaState* failed = nullptr;
  for (const ReplicaState& state : replicas) {
    const Outcome outcome = state.judgement.outcome;
    if (outcome != Outcome::kJobFailed && outcome != Outcome::kBadContract) continue;
    const bool knows = state.judgement.report && !state.judgement.report->culprit.is_null();
    if (failed == nullptr || knows) failed = &state;
    if (knows) break;
  }
  if (failed != nullptr) {
    fail_job(planner, *failed);
    return true;
  }
  const auto succeeded = [](const ReplicaState& state) { return state.judgement.outcome == Outcome::kSucceeded; };
  const auto live = [](const ReplicaState& state) { return state.pod != nullptr && is_live(*state.pod); };
  const bool rank_zero = planner.spec.success_policy == api::SuccessPolicy::kRankZero && succeeded(replicas.front());
  // Whatever the policy, a launcher that exited 0 had the verdict of the whole gang.
  const bool done = rank_zero || (std::any_of(replicas.begin(), replicas.end(), succeeded) &&
                                  std::none_of(replicas.begin(), replicas.end(), live));
  if (!done) return false;
  for (const ReplicaState& state : replicas) {
    if (succeeded(state) && state.judgement.report) planner.absorb(*state.judgement.report);
  }
  if (replicas.front().judgement.report) planner.absorb(*replicas.front().judgement.report);  // covers the whole job
  planner.finish(true, "Completed", rank_zero ? "rank 0 succeeded" : "all ranks succeeded");
  return true;
}

}  // namespace paceline::plan
