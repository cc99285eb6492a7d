// SPDX-License-Identifier: Apache-2.0
// A job whose queue is a LocalQueue of Kueue. The operator owns a Workload for it, as Kueue's own
// integrations do. Kueue admits or evicts the Workload, and nothing else decides about quota. An
// admitted job is then placed like any other, on nodes of its flavors. After an eviction the job
// keeps its attempts and waits for the next admission.
//
// Kueue may admit a part of an elastic job, which then starts smaller. When it shrinks, it gives
// back the quota of the pods that are gone. It never grows beyond what was admitted.
#include "operator/api/elastic.hpp"
#include "operator/api/fingerprint.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

/// Kueue has chosen, or chooses, nodes without the level that the job requires.
bool lacks_level(const KueueSeen& kueue) {
  return kueue.level && kueue.level->required && kueue.workload->level != *kueue.level;
}

/// The Workload was made for the job as it is now, and would be admitted for all of its pods, and
/// for nodes that the job may use.
bool is_current(const Planner& planner, const observe::WorkloadView& workload) {
  if (workload.gave_back && !workload.quota_reserved) return false;
  if (workload.quota_reserved && lacks_level(planner.in.kueue)) return false;
  return workload.queue == planner.in.kueue.queue &&
         (workload.spec == api::sized_fingerprint(planner.in.job.fingerprint, planner.spec) ||
          api::is_former_sized_fingerprint(workload.spec, planner.spec));
}

/// The job has another priority class than its Workload, or asks for another level. While quota is
/// reserved, Kueue takes only the name of another WorkloadPriorityClass.
bool is_outdated(const KueueSeen& kueue) {
  const observe::WorkloadView& workload = *kueue.workload;
  const bool other_class = workload.priority != kueue.priority;
  if (!workload.quota_reserved)
    return other_class || (kueue.level && workload.level != *kueue.level);
  return other_class && workload.priority.of_kueue && kueue.priority.of_kueue;
}

/// The elastic job runs with fewer replicas than it has quota for, and no other pod is left.
bool has_shrunk(const Planner& planner) {
  if (!planner.spec.elastic || !planner.out.status.elastic || stops_old_size(planner)) return false;
  const std::vector<api::PodGrant>& grants = planner.in.kueue.grants;
  if (grants.size() <= planner.spec.elastic->role) return false;
  const std::optional<int>& pods = grants[planner.spec.elastic->role].pods;
  return pods && *pods > planner.out.status.elastic->replicas;
}

std::string why_waiting(const KueueSeen& kueue) {
  const auto& workload = kueue.workload;
  std::string where = "waits for quota in Kueue's LocalQueue " + kueue.queue;
  if (workload == nullptr || workload->message.empty()) return where;
  return where + ": " + workload->message;
}

}  // namespace

bool waits_for_quota(Planner& planner) {
  const KueueSeen& kueue = planner.in.kueue;
  if (kueue.queue.empty()) return false;
  const auto& workload = kueue.workload;
  const bool current = workload != nullptr && is_current(planner, *workload);
  if (current && !workload->deleting && is_outdated(kueue))
    planner.out.workload_step = WorkloadStep::kRevise;
  if (current && workload->grants()) return false;
  planner.out.queued = false;
  if (workload == nullptr && !kueue.queue_exists) {
    planner.set(status::kPlaced, false, "LocalQueueNotFound",
                "Kueue's LocalQueue " + kueue.queue +
                    " does not exist in this namespace; create it, or change the label " +
                    api::kKueueQueueLabel);
    return true;
  }
  if (workload == nullptr) planner.out.workload_step = WorkloadStep::kCreate;
  planner.set(status::kPlaced, false, "WaitingForKueue", why_waiting(kueue));
  planner.set(status::kQuotaReserved, false, "WaitingForKueue", why_waiting(kueue));
  return true;
}

bool quota_lost(Planner& planner) {
  // A job that was placed before its queue became Kueue's keeps its placement.
  if (planner.status().workload.empty()) return false;
  const auto& workload = planner.in.kueue.workload;
  if (workload != nullptr && workload->grants()) return false;
  const bool evicted = workload != nullptr && workload->evicted;
  const std::string reason = evicted && workload->eviction == "Preempted" ? "Preempted" : "Evicted";
  const std::string why = evicted ? workload->eviction + ": " + workload->message
                                  : "Workload " + planner.status().workload +
                                        (workload == nullptr ? " was deleted" : " lost its quota");
  planner.unplace(reason, "Kueue evicted the job (" + why + ")", false);
  planner.out.queued = false;
  return true;
}

void tend_workload(Planner& planner) {
  const auto& workload = planner.in.kueue.workload;
  if (workload == nullptr || workload->deleting) return;
  const bool stopped = !planner.any_live_pod() && planner.out.creates.empty();
  const api::JobStatus& job = planner.status();
  WorkloadStep& step = planner.out.workload_step;
  if (job.finished()) {
    if (!workload->finished && stopped) step = WorkloadStep::kFinish;
    return;
  }
  if (job.placed()) {
    if (job.workload.empty() || !workload->grants()) return;
    const bool ready = job.is_true(status::kRunning);
    if (ready != workload->pods_ready) {
      step = ready ? WorkloadStep::kReady : WorkloadStep::kNotReady;
    } else if (has_shrunk(planner)) {
      step = WorkloadStep::kShrink;
    } else if (is_outdated(planner.in.kueue)) {
      step = WorkloadStep::kRevise;
    }
    return;
  }
  // Quota is given back when no pod uses it any more.
  if (!stopped) return;
  const bool wanted = !planner.in.kueue.queue.empty() && !planner.spec.suspend &&
                      planner.in.job.errors.empty() && !workload->finished;
  if (!wanted || !is_current(planner, *workload)) {
    step = WorkloadStep::kDelete;
  } else if (workload->evicted && workload->quota_reserved) {
    step = WorkloadStep::kRelease;
  }
}

}  // namespace paceline::plan
