// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/job/planner.hpp"

#include <algorithm>

#include "common/contract/injection.hpp"
#include "operator/status/goodput.hpp"

namespace paceline::plan {
namespace {

constexpr std::chrono::nanoseconds kGuardInterval = std::chrono::seconds(30);
constexpr std::chrono::nanoseconds kUnseenInterval = std::chrono::seconds(5);

}  // namespace

Planner::Planner(const Observed& observed) : in(observed), spec(observed.job.job.spec) {
  out.status = observed.job.status;
  out.status.observed_generation = observed.job.job.metadata.generation;
  out.status.checkpoint =
      status::later_checkpoint(out.status.checkpoint, observed.memory.checkpoint);
  if (observed.job.errors.empty()) out.status.queue = api::queue_of(observed.job.job);
  out.grants = observed.kueue.grants;
  out.workload = observed.kueue.workload;
  out.level = observed.kueue.level;
}

void Planner::set(std::string_view type, bool value, std::string_view reason, std::string message) {
  status::set_condition(out.status, type, value, reason, std::move(message), in.now);
}

void Planner::clear(std::string_view type, std::string_view reason, std::string message) {
  status::clear_condition(out.status, type, reason, std::move(message), in.now);
}

void Planner::wake_after(std::chrono::nanoseconds delay) {
  delay = std::max<std::chrono::nanoseconds>(delay, std::chrono::milliseconds(10));
  if (!out.requeue_after || delay < *out.requeue_after) out.requeue_after = delay;
}

int Planner::incarnation(const api::Replica& replica) const {
  const auto& roles = out.status.roles;
  const auto role = static_cast<std::size_t>(replica.role);
  const auto index = static_cast<std::size_t>(replica.index);
  return role < roles.size() && index < roles[role].incarnations.size()
             ? roles[role].incarnations[index]
             : 0;
}

void Planner::set_incarnation(const api::Replica& replica, int incarnation) {
  out.status.roles[static_cast<std::size_t>(replica.role)]
      .incarnations[static_cast<std::size_t>(replica.index)] = incarnation;
}

bool Planner::changed_contract() {
  if (status().contract == contract::kRuntimeContract) return false;
  unplace("RuntimeChanged",
          "a pod is missing, and the operator was upgraded since the job was placed: launchers of "
          "both releases cannot be in one gang, so the job starts again",
          false);
  return true;
}

bool Planner::is_lost(const std::string& name) {
  const auto node = in.node(name);
  if (node == nullptr) {
    if (!in.memory.unseen_nodes.contains(name)) {
      out.absent_nodes.insert(name);
      return true;
    }
    wake_after(kUnseenInterval);
    return false;
  }
  if (node->ready) return false;
  if (!guard_)
    guard_.emplace(in.nodes ? in.nodes() : std::vector{node},
                   spec.failure_policy.force_delete_after);
  const std::optional<WallTime> due = guard_->lost_at(name);
  if (due && *due <= now()) return true;
  // Nothing tells when the guard lets the node go.
  wake_after(due ? std::chrono::nanoseconds(*due - now()) : kGuardInterval);
  return false;
}

void Planner::remove(const observe::PodView& pod, bool force) {
  // Nobody asks whether the node of a placeholder, which may be new, exists. If it is gone,
  // Kubernetes ends the pod by itself.
  const bool unseen = pod.placeholder && in.node(pod.node) == nullptr;
  // On a node that does not answer, a graceful deletion never ends.
  if (!pod.node.empty() && !pod.terminal() && !force && !unseen) force = is_lost(pod.node);
  if (pod.deleting && !force) return;
  const bool listed = std::any_of(out.deletes.begin(), out.deletes.end(),
                                  [&](const DeletePod& d) { return d.uid == pod.meta.uid; });
  if (!listed) out.deletes.push_back({pod.meta.name, pod.meta.uid, force});
}

bool Planner::any_live_pod() const {
  return std::any_of(in.pods.begin(), in.pods.end(), [](const auto& pod) { return !pod->over(); });
}

void Planner::remove_live_pods() {
  for (const auto& pod : in.pods) {
    if (!pod->terminal()) remove(*pod);
  }
}

void Planner::remove_unended(const observe::PodView& pod) {
  if (pod.terminal() || (pod.gang && pod.gang->ended)) return;
  const std::size_t before = out.deletes.size();
  remove(pod);
  // The cache may lag: delete only this version, so that a pod that has ended meanwhile keeps its
  // log.
  if (out.deletes.size() > before && !out.deletes.back().force)
    out.deletes.back().version = pod.meta.resource_version;
}

void Planner::remove_running_pods() {
  for (const auto& pod : in.pods) remove_unended(*pod);
}

void Planner::unplace(std::string_view reason, const std::string& message, bool back_off) {
  if (status().placed() && in.memory.summary) {
    keep_goodput(*in.memory.summary, in.memory.summary_at);
    keep_checkpoint(*in.memory.summary);
  }
  status().placement.clear();
  status().placement_where.clear();
  status().slots = false;
  status().placed_spec.clear();
  status().runtime_image.clear();
  status().contract = 0;
  status().workload.clear();
  status().acceleration.reset();
  status().effects = nullptr;
  status().findings = nullptr;
  status().start_time.reset();
  status().pod_counts.reset();
  if (auto& elastic = status().elastic) {
    elastic->replicas = 0;
    elastic->since.reset();
    elastic->message.clear();
  }
  for (api::RoleStatus& role : status().roles) role.ready = role.succeeded = role.failed = 0;
  set(status::kPlaced, false, reason, message);
  clear(status::kQuotaReserved, reason);
  clear(status::kPreflightPassed, reason);
  // Also if it is False: its reason Completing would end the next placement.
  if (status().find(status::kRunning) != nullptr) set(status::kRunning, false, reason, message);
  clear(status::kRestarting, reason, message);
  clear(status::kReplacing, reason, message);
  out.back_off = back_off;
  out.queued = !spec.suspend;
  remove_live_pods();
}

void Planner::finish(bool success, std::string_view reason, const std::string& message) {
  status().completion_time = std::chrono::floor<std::chrono::seconds>(now());
  // Set all conditions, because events may be coalesced and earlier steps unseen.
  set(status::kRunning, false, reason, message);
  if (status().find(status::kRestarting) != nullptr)
    set(status::kRestarting, false, reason, message);
  clear(status::kReplacing, reason, message);
  if (status().find(status::kQuotaReserved) != nullptr)
    set(status::kQuotaReserved, false, "Finished");
  set(status::kPlaced, false, "Finished");
  set(success ? status::kSucceeded : status::kFailed, true, reason, message);
}

void Planner::absorb(const status::Report& report) {
  status().attempt = std::max(status().attempt, report.attempt);
  status().restarts = std::max(status().restarts, report.restarts);
  if (!report.training.is_null()) status().training = report.training;
  keep_goodput(report, now());
  keep_checkpoint(report);
  if (!report.culprit.is_null()) status().culprit = report.culprit;
  if (!report.effects.is_null() && status().acceleration) status().effects = report.effects;
  status().findings = report.findings;
}

void Planner::keep_goodput(const status::Report& report, WallTime as_of) {
  status().goodput = status::longer_goodput(status().goodput, report.goodput, as_of);
}

void Planner::keep_checkpoint(const status::Report& report) {
  status().checkpoint = status::later_checkpoint(status().checkpoint, report.checkpoint);
}

void Planner::keep_last_words(const status::Report& report, int node_rank) {
  keep_checkpoint(report);
  if (node_rank == 0) keep_goodput(report, now());
}

void Planner::leave_out(std::chrono::nanoseconds pause) {
  status().goodput = status::goodput_after_pause(status().goodput, pause);
}

}  // namespace paceline::plan
