// SPDX-License-Identifier: Apache-2.0
// The end of the job, as the launcher of node rank 0 decided it for the whole gang: it hosts the
// rendezvous, whatever its role. A launcher exits with 0 only on the gang's verdict, so the first
// one that does means success, whatever happens to the other pods. The policy waits a moment for
// the host's launcher, because it knows what the whole job measured.
#include <algorithm>

#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kLastWord =
    // from the success of another launcher to the end of the host's, as its kubelet reports it
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
  planner.status().pod_counts = api::PodCounts{ready, static_cast<int>(replicas.size())};
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

bool has_launcher(const api::Spec& spec) {
  return std::ranges::any_of(
      spec.roles, [](const api::Role& role) { return role.kind == api::RoleKind::kLauncher; });
}

bool decides(const api::Spec& spec, const api::Role& role) {
  return contract::decides(role.kind, has_launcher(spec));
}

/// The replica of rank 0 of the training, as rendezvous::number_ranks counts.
const ReplicaState& rank_zero_replica(const api::Spec& spec,
                                      const std::vector<ReplicaState>& replicas) {
  return *std::ranges::min_element(replicas, {}, [&](const ReplicaState& state) {
    return spec.roles[static_cast<std::size_t>(state.replica.role)].kind;
  });
}

/// Do not wait for a launcher that may never receive the verdict: a late replacement, or a pod on a
/// lost node.
bool waits_for_host(Planner& planner, const ReplicaState& host) {
  if (host.pod == nullptr || !is_live(*host.pod)) return false;
  planner.set(status::kRunning, false, status::kCompleting,
              "the gang has succeeded; its node rank 0 is about to end");
  planner.clear(status::kRestarting, status::kCompleting);
  const api::Role& role = planner.spec.roles[static_cast<std::size_t>(host.replica.role)];
  // The verdict finds the ranks of training ended. A helper's processes get their grace period.
  std::chrono::nanoseconds last_word = kLastWord;
  if (!decides(planner.spec, role)) last_word += planner.spec.failure_policy.grace_period;
  const auto left = planner.status().find(status::kRunning)->since + last_word - planner.now();
  if (left <= std::chrono::nanoseconds(0)) return false;
  planner.wake_after(left);
  return true;
}

}  // namespace

bool gang_succeeded(Planner& planner, const std::vector<ReplicaState>& replicas) {
  // A success that was seen once stays: the pod that reported it may be deleted while the policy
  // waits for the host.
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
  const ReplicaState& host = replicas.front();
  if (waits_for_host(planner, host)) return true;
  for (const ReplicaState& state : replicas) {
    if (succeeded(state) && state.judgement.report) planner.absorb(*state.judgement.report);
  }
  // covers the whole job
  if (host.judgement.report) planner.absorb(*host.judgement.report);
  const bool launcher = has_launcher(planner.spec);
  const bool rank_zero = !launcher &&
                         planner.spec.success_policy == api::SuccessPolicy::kRankZero &&
                         succeeded(rank_zero_replica(planner.spec, replicas));
  for (api::RoleStatus& role : planner.status().roles) {
    role.ready = 0;
    // the verdict covers every rank
    if (!rank_zero) role.succeeded = role.replicas, role.failed = 0;
  }
  planner.status().pod_counts = api::PodCounts{0, static_cast<int>(replicas.size())};
  planner.finish(true, "Completed",
                 rank_zero  ? "rank 0 succeeded"
                 : launcher ? "the launcher succeeded"
                            : "all ranks succeeded");
  return true;
}

}  // namespace paceline::plan
