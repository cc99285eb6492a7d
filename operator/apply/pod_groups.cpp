// SPDX-License-Identifier: Apache-2.0
// PodGroups of the schedulers that bind whole gangs by themselves.
#include <utility>

#include "operator/api/backend.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/apply/controller.hpp"
#include "operator/apply/kueue/workload.hpp"

namespace paceline::apply {
namespace {

kube::Resource pod_groups_of(const render::GangScheduler& scheduler) {
  return {scheduler.group, scheduler.version, "podgroups", "PodGroup"};
}

}  // namespace

Done Actuator::group(const api::TrainingJob& job, const render::PodGroupInputs& inputs,
                     bool only_try) {
  const api::Backend backend = api::backend_of(job.spec);
  const render::GangScheduler* scheduler = render::gang_scheduler(backend);
  if (scheduler == nullptr) return {};
  const kube::Resource resource = pod_groups_of(*scheduler);
  const nlohmann::json object = render::render_pod_group(job, *scheduler, inputs);
  Done done;
  if (only_try) {
    kube::WriteOptions options;
    options.dry_run = true;
    const auto answer = api_.create(resource, job.metadata.name_space, object.dump(), options);
    if (answer || answer.error().code == Code::kAlreadyExists) return done;
    if (answer.error().code != Code::kNotFound) {
      Collector collector;
      collector.failed(answer.error(), "PodGroupRefused");
      return collector.take();
    }
    done.refusal = plan::Waiting{
        "SchedulerNotInstalled",
        "the API server does not serve " + scheduler->resource() + " (" +
            std::string(scheduler->version) + "): install " + std::string(to_string(backend)) +
            ", or change spec.scheduling.backend"};
    return done;
  }
  if (auto kept = keep(resource, job, object); !kept) return kept.error();
  return done;
}

Done Actuator::ungroup(const api::TrainingJob& job) {
  Done done;
  // The spec may name another scheduler by now.
  for (const render::GangScheduler& scheduler : render::gang_schedulers()) {
    const auto gone = api_.remove(pod_groups_of(scheduler), job.metadata.name_space,
                                  render::pod_group_name(job), {});
    if (!gone && gone.error().code != Code::kNotFound) done.error = gone.error();
  }
  return done;
}

Done Controller::group(const observe::JobView& job, JobState& state, const std::string& priority,
                       bool only_try) {
  observe::Resources all;
  for (const plan::Need& need : known_needs(job, state)) {
    for (int i = 0; i < need.count; ++i) all.add(need.each);
  }
  // A LocalQueue of Kueue is no queue of the other scheduler.
  const bool of_kueue = !look_at_kueue(parts_.stores, job).queue.empty();
  return actuator_.group(
      job.job, {all.amounts(), of_kueue ? "" : job.job.spec.scheduling.queue, priority}, only_try);
}

}  // namespace paceline::apply
