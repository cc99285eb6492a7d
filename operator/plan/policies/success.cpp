// SPDX-License-Identifier: Apache-2.0
// The end of the job, as rank 0's launcher decided it for the whole gang. A launcher exits with 0
// only on the gang's verdict, so the first one that does means success, whatever happens to the
// other pods. The policy waits a moment for rank 0's launcher, because it knows what the whole job
// measured.
#include <algorithm>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kLastWord =
    // from the success of another launcher to the end of rank 0's, as its kubelet reports it
    std::chrono::seconds(30);

void count(Planner& planner, const std::vector<ReplicaState>& replicas) {
  for (api::RoleStatus& role : planner.status().roles)
    role.ready = role.succeeded = role.failed = 0;
  int ready = 0;
  for (const ReplicaState& state : replicas) {
    api::RoleStatus& role = planner.status().roles[static_cast<std::size_t>(state.replica.role)];
    const Outcome outcome = state.judgement.outcome;
    if (outcome == Outcome::kRunning) ++role.ready, ++ready;
    if (outcome == Outcome::kSucceeded) ++role.succeeded;
    if (outcome == Outcome::kJobFailed || outcome == Outcome::kBadContract ||
        outcome == Outcome::kKilled || outcome == Outcome::kUnfit)
      ++role.failed;
  }
  planner.status().ready = std::to_string(ready) + "/" + std::to_string(replicas.size());
}

void fail_job(Planner& planner, const ReplicaState& state) {
  const bool contract = state.judgement.outcome == Outcome::kBadContract;
  std::string message = state.judgement.message;
  if (const auto& report = state.judgement.report) planner.absorb(*report);
  if (planner.status().culprit.is_null())
    planner.status().culprit = {{"pod", state.pod->meta.name},
                                {"exitCode", state.pod->gang->exit_code}};
  if (message.empty()) {
    const nlohmann::json& culprit = planner.status().culprit;
    message = "pod " + culprit.value("pod", state.pod->meta.name);
    if (culprit.contains("rank")) message = "rank " + culprit["rank"].dump() + " (" + message + ")";
    if (culprit.contains("exitCode"))
      message += " ended with exit code " + culprit["exitCode"].dump();
    if (culprit.contains("signal")) message += " ended by signal " + culprit["signal"].dump();
    if (culprit.contains("class")) message += ", " + culprit["class"].get<std::string>();
  }
  const std::string& kind = state.judgement.kind;
  planner.finish(false, contract ? "BadContract" : kind.empty() ? "RanksFailed" : kind, message);
}

bool succeeded(const ReplicaState& state) { return state.judgement.outcome == Outcome::kSucceeded; }

/// Do not wait for a launcher that may never receive the verdict: a late replacement, or a pod on a
/// lost node.
bool waits_for_rank_zero(Planner& planner, const ReplicaState& first) {
  if (first.pod == nullptr || !is_live(*first.pod)) return false;
  planner.set(status::kRunning, false, status::kCompleting,
              "the gang has succeeded; its rank 0 is about to end");
  planner.clear(status::kRestarting, status::kCompleting);
  const auto left = planner.status().find(status::kRunning)->since + kLastWord - planner.now();
  if (left <= std::chrono::nanoseconds(0)) return false;
  planner.wake_after(left);
  return true;
}

}  // namespace

bool gang_succeeded(Planner& planner, const std::vector<ReplicaState>& replicas) {
  // A success that was seen once stays: the pod that reported it may be deleted while the policy
  // waits for rank 0.
  return planner.status().is(status::kRunning, status::kCompleting) ||
         std::ranges::any_of(replicas, succeeded);
}

bool job_verdict(Planner& planner, const std::vector<ReplicaState>& replicas) {
  count(planner, replicas);
  // Prefer the message of the launcher that knows the culprit.
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
  if (!gang_succeeded(planner, replicas)) return false;
  if (waits_for_rank_zero(planner, replicas.front())) return true;
  for (const ReplicaState& state : replicas) {
    if (succeeded(state) && state.judgement.report) planner.absorb(*state.judgement.report);
  }
  // covers the whole job
  if (replicas.front().judgement.report) planner.absorb(*replicas.front().judgement.report);
  const bool rank_zero =
      planner.spec.success_policy == api::SuccessPolicy::kRankZero && succeeded(replicas.front());
  for (api::RoleStatus& role : planner.status().roles) {
    role.ready = 0;
    // the verdict covers every rank
    if (!rank_zero) role.succeeded = role.replicas, role.failed = 0;
  }
  planner.status().ready = "0/" + std::to_string(replicas.size());
  planner.finish(true, "Completed", rank_zero ? "rank 0 succeeded" : "all ranks succeeded");
  return true;
}

}  // namespace paceline::plan
