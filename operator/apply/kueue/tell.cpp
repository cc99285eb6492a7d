// SPDX-License-Identifier: Apache-2.0
// What the Controller reads of Kueue for a plan, and what it tells Kueue.
#include "operator/apply/controller.hpp"
#include "operator/apply/kueue/topologies.hpp"
#include "operator/apply/kueue/workload.hpp"

namespace paceline::apply {

plan::KueueSeen Controller::ask_kueue(const observe::JobView& job) const {
  plan::KueueSeen seen = look_at_kueue(parts_.stores, job);
  if (seen.queue.empty() || !job.errors.empty()) return seen;
  // A placed job keeps its nodes, whatever Kueue was asked for.
  if (!job.status.placed()) seen.level = level_to_ask(parts_.stores, job.job);
  seen.priority = {job.job.metadata.kueue_priority, true};
  if (!seen.priority.name.empty()) return seen;
  int value = 0;
  // A class that does not exist is refused when the Workload is to get it.
  (void)priority_of(job, seen.priority.name, value);
  seen.priority.of_kueue = false;
  return seen;
}

void Controller::wake_for_levels() {
  parts_.enqueue(kScheduleKey);
  for (const auto& job : parts_.stores.jobs.list()) {
    const api::Spec& spec = job->job.spec;
    const bool has_level = spec.required_topology || spec.preferred_topology;
    if (has_level && !job->status.placed() && !api::named_queue(job->job).empty())
      parts_.enqueue(kube::key_of(job->meta.ns, job->meta.name));
  }
}

Done Controller::tell_kueue(const JobPtr& job, const plan::Plan& plan) {
  const plan::WorkloadStep step = plan.workload_step;
  if (step == plan::WorkloadStep::kCreate || step == plan::WorkloadStep::kRevise) {
    std::string priority;
    int value = 0;
    Done done;
    done.refusal = priority_of(*job, priority, value);
    if (!done.refusal && step == plan::WorkloadStep::kCreate) {
      done = actuator_.submit(job->job, priority, value, plan.level.value_or(api::LevelAsk{}));
    } else if (!done.refusal) {
      const api::LevelAsk level = plan.level.value_or(plan.workload->level);
      done = actuator_.revise(job->job, *plan.workload, priority, value, level);
    }
    // A job that has its quota runs on, whatever its new class is.
    if (step == plan::WorkloadStep::kRevise && plan.workload->quota_reserved) done.refusal.reset();
    return done;
  }
  Done done;
  const Status written = write_workload(parts_.api, plan, job->job.spec, parts_.clock.wall());
  // If the Workload has changed, the cache will tell, and the job is planned again.
  const bool changed = !written && (written.error().code == Code::kConflict ||
                                    written.error().code == Code::kNotFound);
  if (!written && !changed) done.error = written.error();
  return done;
}

}  // namespace paceline::apply
