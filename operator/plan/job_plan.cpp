// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/job_plan.hpp"

#include <algorithm>

#include "common/contract/labels.hpp"
#include "operator/plan/planner.hpp"

namespace paceline::plan {

Planner::Planner(const Observed& observed) : in(observed), spec(observed.job.job.spec) {
  out.status = observed.job.status;
  out.status.observed_generation = observed.job.job.metadata.generation;
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

void Planner::remove(const observe::PodView& pod, bool force) {
  if (!pod.node.empty() && !pod.terminal() && !force) {
    // On a node that nobody hears from, a graceful deletion never ends.
    const auto node = in.node(pod.node);
    force = node == nullptr;
    if (node != nullptr && !node->ready) {
      const auto left = node->ready_since + spec.failure_policy.force_delete_after - now();
      force = left <= std::chrono::nanoseconds(0);
      if (!force) wake_after(left);
    }
  }
  if (pod.deleting && !force) return;
  const bool listed = std::any_of(out.deletes.begin(), out.deletes.end(),
                                  [&](const DeletePod& d) { return d.uid == pod.meta.uid; });
  if (!listed) out.deletes.push_back({pod.meta.name, pod.meta.uid, force});
}

bool Planner::any_live_pod() const {
  return std::any_of(in.pods.begin(), in.pods.end(),
                     [](const auto& pod) { return !pod->terminal() || pod->deleting; });
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
  // The cache may lag: a pod that has ended meanwhile keeps its log.
  if (out.deletes.size() > before && !out.deletes.back().force)
    out.deletes.back().version = pod.meta.resource_version;
}

void Planner::remove_running_pods() {
  for (const auto& pod : in.pods) remove_unended(*pod);
}

void Planner::unplace(std::string_view reason, const std::string& message, bool back_off) {
  status().placement.clear();
  status().slots = false;
  status().acceleration.reset();
  status().start_time.reset();
  status().ready.clear();
  for (api::RoleStatus& role : status().roles) role.ready = role.succeeded = role.failed = 0;
  set(status::kPlaced, false, reason, message);
  clear(status::kQuotaReserved, reason);
  clear(status::kPreflightPassed, reason);
  clear(status::kRunning, reason, message);
  clear(status::kRestarting, reason, message);
  out.back_off = back_off;
  out.queued = !spec.suspend;
  remove_live_pods();
}

void Planner::finish(bool success, std::string_view reason, const std::string& message) {
  status().completion_time = std::chrono::floor<std::chrono::seconds>(now());
  // The same end whatever was seen on the way: events may be coalesced.
  set(status::kRunning, false, reason, message);
  if (status().find(status::kRestarting) != nullptr)
    set(status::kRestarting, false, reason, message);
  if (status().find(status::kQuotaReserved) != nullptr)
    set(status::kQuotaReserved, false, "Finished");
  set(status::kPlaced, false, "Finished");
  set(success ? status::kSucceeded : status::kFailed, true, reason, message);
  after_the_end(*this);
}

void Planner::absorb(const status::Report& report) {
  status().attempt = std::max(status().attempt, report.attempt);
  status().restarts = std::max(status().restarts, report.restarts);
  if (!report.training.is_null()) status().training = report.training;
  if (!report.culprit.is_null()) status().culprit = report.culprit;
}

namespace {

/// A status that somebody edited, or that is of another spec, names replicas that are not there.
bool describes(const api::JobStatus& status, const api::Spec& spec) {
  return status.nodes().size() == static_cast<std::size_t>(api::replica_count(spec)) &&
         std::equal(status.roles.begin(), status.roles.end(), spec.roles.begin(), spec.roles.end(),
                    [](const api::RoleStatus& known, const api::Role& role) {
                      return known.incarnations.size() == static_cast<std::size_t>(role.replicas);
                    });
}

}  // namespace

Plan plan_job(const Observed& observed) {
  Planner planner(observed);
  const api::TrainingJob& job = observed.job.job;
  const auto done = [&] {
    status::compute_phase(planner.status());
    return std::move(planner.out);
  };
  if (job.metadata.deleting) {
    // garbage collection takes the pods; nothing is written to what is going
    planner.out.status = observed.job.status;
    return std::move(planner.out);
  }
  if (observed.job.errors.empty() && job.spec.managed_by != contract::kManagedBy) {
    planner.out.status = observed.job.status;
    return std::move(planner.out);
  }
  if (after_the_end(planner)) return done();
  if (!observed.job.errors.empty()) {
    planner.unplace("InvalidSpec", api::to_error(observed.job.errors).message, false);
    planner.out.queued = false;
    return done();
  }
  if (suspension(planner) || deadline(planner)) return done();
  if (planner.status().placed() && !describes(planner.status(), planner.spec)) {
    planner.unplace("StatusDamaged",
                    "the placement on record is not one of this spec; the job starts again", true);
    return done();
  }
  if (!planner.status().placed()) {
    queue_up(planner);
    if (!planner.status().placed()) return done();
  } else if (!observed.memory.preempted_by.empty()) {
    planner.unplace("Preempted",
                    "made room for job " + observed.memory.preempted_by + " of higher priority",
                    false);
    return done();
  } else if (observed.memory.refusal) {
    planner.unplace(observed.memory.refusal->reason, observed.memory.refusal->message, true);
    return done();
  }
  std::vector<ReplicaState> replicas = survey(planner);
  if (create_gang(planner, replicas) || preflight(planner, replicas) ||
      job_verdict(planner, replicas) || create_replacements(planner, replicas) ||
      lost_nodes(planner, replicas) || bind_gang(planner, replicas) ||
      replace_lost(planner, replicas)) {
    return done();
  }
  report_progress(planner, replicas);
  return done();
}

}  // namespace paceline::plan
