// SPDX-License-Identifier: Apache-2.0
// PodGroups of the schedulers that bind whole gangs by themselves, and what their pods take.
#include "common/base/log.hpp"

#include <limits>
#include <set>
#include <string>
#include <utility>

#include "operator/apply/actuator.hpp"
#include "operator/apply/controller.hpp"
#include "operator/apply/facts/owned.hpp"
#include "operator/apply/kueue/workload.hpp"
#include "operator/apply/scheduler_pass.hpp"
#include "operator/plan/placement/quota.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

kube::Resource pod_groups_of(const render::GangScheduler& scheduler) {
  return {scheduler.group, scheduler.version, "podgroups", "PodGroup"};
}

/// A role without the right, or a webhook.
plan::Waiting not_deleted(const render::GangScheduler& scheduler, const std::string& name,
                          const std::string& verb, const Error& error) {
  return {"PodGroupNotDeleted",
          "the API server does not let the operator " + verb + " PodGroup " + name +
              " of the gang that has ended (verb " + verb + ", resource podgroups, API group " +
              std::string(scheduler.group) + "): " + error.message +
              "; allow it, by the operator's ClusterRole or the webhook that answers, or " +
              "kubectl delete " + scheduler.resource() + " " + name};
}

}  // namespace

Done Actuator::group(const api::TrainingJob& job, const std::string& name,
                     const render::PodGroupInputs& inputs, bool only_try) {
  const render::GangScheduler* scheduler = render::gang_scheduler(api::backend_of(job.spec));
  if (scheduler == nullptr) return {};
  const kube::Resource resource = pod_groups_of(*scheduler);
  kube::WriteOptions options;
  options.dry_run = only_try;
  const std::string& ns = job.metadata.name_space;
  Done done;
  const auto look = [&] {
    const auto found = api_.get(resource, ns, name);
    if (!found) {
      done.error = found.error();
    } else if (owner_of(*found) != job.metadata.uid) {
      done.refusal = plan::Waiting{"NameTaken", not_of_this_job(resource.kind, name)};
    }
    return found.has_value();
  };
  // Asked first: what admits new groups may be full or away, though this one exists.
  if (!only_try && look()) return done;
  done.error.reset();
  const auto answer = api_.create(
      resource, ns, render::render_pod_group(job, name, *scheduler, inputs).dump(), options);
  if (answer) return done;
  if (answer.error().code == Code::kAlreadyExists) {
    look();
  } else if (answer.error().code == Code::kNotFound) {
    done.refusal =
        plan::Waiting{"SchedulerNotInstalled",
                      "the API server does not serve " + scheduler->resource() + " (" +
                          std::string(scheduler->version) + "): " + std::string(scheduler->remedy) +
                          ", or change spec.scheduling.backend"};
  } else if (final_refusal(answer.error())) {
    done.refusal = plan::Waiting{"PodGroupRefused", answer.error().message};
  } else {
    done.error = answer.error();
  }
  return done;
}

Done Actuator::ungroup(const api::TrainingJob& job, const std::string& name) {
  Done done;
  const render::GangScheduler* used = render::gang_scheduler(api::backend_of(job.spec));
  const auto refuse = [&](const render::GangScheduler& scheduler, const std::string& verb,
                          const Error& error) {
    if (!done.refusal) done.refusal = not_deleted(scheduler, name, verb, error);
  };
  // The spec may name another scheduler by now.
  for (const render::GangScheduler& scheduler : render::gang_schedulers()) {
    const kube::Resource resource = pod_groups_of(scheduler);
    const auto found = api_.get(resource, job.metadata.name_space, name);
    if (!found) {
      const Code code = found.error().code;
      if (code != Code::kNotFound && code != Code::kForbidden) done.error = found.error();
      // A role may have no rule for schedulers that are not used: absent there. The one that the
      // job names was used, so its group may be there.
      if (code == Code::kForbidden && used != nullptr && used->group == scheduler.group)
        refuse(scheduler, "get", found.error());
      continue;
    }
    const json group = json::parse(*found, nullptr, false);
    if (owner_of(group) != job.metadata.uid) continue;
    kube::DeleteOptions options;
    options.uid = group["metadata"].value("uid", "");
    const auto gone = api_.remove(resource, job.metadata.name_space, name, options);
    if (gone || gone.error().code == Code::kNotFound) continue;
    if (gone.error().code == Code::kForbidden) {
      refuse(scheduler, "delete", gone.error());
    } else {
      done.error = gone.error();
    }
  }
  return done;
}

Outcome Controller::drop_group(const JobPtr& job, JobState& state, const std::string& name) {
  Done done = actuator_.ungroup(job->job, name);
  const std::lock_guard lock(mutex_);
  if (!done.refusal && !done.error) {
    state.memory.pod_group_gone = true;
    return {false, std::chrono::milliseconds(0)};
  }
  note_failure(state, done);
  ++counters_.errors;
  const std::string why = done.refusal ? done.refusal->message : to_string(*done.error);
  log_about(state.key, spdlog::level::warn, "{}", why);
  if (!done.refusal || std::exchange(state.memory.pod_group_kept, why) == why)
    return {true, std::nullopt};
  return {false, std::chrono::milliseconds(0)};  // the status is to say so
}

Done Controller::group(const observe::JobView& job, JobState& state, const std::string& name,
                       const std::string& priority, bool only_try) {
  observe::Resources all;
  for (const plan::Need& need : known_needs(job, state)) {
    for (int i = 0; i < need.count; ++i) all.add(need.each);
  }
  // A LocalQueue of Kueue is no queue of the other scheduler, unless Kueue's label names it.
  const bool of_kueue =
      job.job.metadata.kueue_queue.empty() && !look_at_kueue(parts_.stores, job).queue.empty();
  const std::string& queue = job.job.spec.scheduling.queue;
  return actuator_.group(job.job, name, {all.amounts(), of_kueue ? "" : queue, priority}, only_try);
}

Done Controller::keep_group(const observe::JobView& job, JobState& state, const std::string& name) {
  constexpr auto kLook = std::chrono::minutes(1);
  const SteadyTime now = parts_.clock.steady();
  if (state.group_seen_at && now - *state.group_seen_at < kLook) return {};
  state.group_seen_at = now;
  std::string priority;
  int value = 0;
  if (const auto refused = priority_of(job, priority, value))
    return Done{refused, std::nullopt, 0, 0, 0, 0};
  return group(job, state, name, priority, false);
}

void Controller::SchedulerPass::charge_by_other(const observe::JobView& job, JobState& state) {
  // The other scheduler decides when it makes room: no job that Paceline places stops it.
  constexpr int kNever = std::numeric_limits<int>::max();
  plan::RunningGang gang{job.meta.uid, job.meta.name, "", kNever, {}, false, {}};
  std::set<int> created = unplaced_of_[job.meta.uid];
  for (const observe::PodView* pod : pods_of_[job.meta.uid]) {
    take(pod->place(), pod->requests);
    gang.pods.emplace_back(pod->place(), pod->requests);
    created.insert(pod->gang->node_rank);
  }
  if (!gang.pods.empty()) input_.running.push_back(std::move(gang));
  if (!job.status.placed() || job.status.finished() || !is_tended(job)) return;
  if (!job.errors.empty()) return;
  // Those that are not created yet: the quota does not count them.
  int rank = 0;
  for (const plan::Need& need : controller_.needs_of(job, state)) {
    for (int i = 0; i < need.count; ++i) {
      if (created.contains(rank++)) continue;
      for (observe::QuotaView& quota : input_.quotas[job.meta.ns]) {
        for (auto& [resource, used] : quota.used) used += plan::quota_use(need.each, resource);
      }
    }
  }
}

}  // namespace paceline::apply
