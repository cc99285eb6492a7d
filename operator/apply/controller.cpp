// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "operator/apply/controller.hpp"

#include <algorithm>

#include "operator/plan/job_plan.hpp"
#include "operator/status/training.hpp"

namespace paceline::apply {
namespace {

constexpr auto kCacheWait = std::chrono::seconds(1);

}  // namespace

Controller::Controller(Parts parts, Settings settings)
    : parts_(std::move(parts)),
      actuator_(parts_.api, parts_.executor, std::move(settings), parts_.new_token) {}

Counters Controller::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Controller::subscribe() {
  parts_.stores.jobs.subscribe([this](const auto& before, const auto& after) {
    const observe::JobView& job = after ? *after : *before;
    parts_.enqueue(kube::key_of(job.meta.ns, job.meta.name));
    if (!after) parts_.enqueue(kScheduleKey);
  });
  parts_.stores.pods.subscribe([this](const auto& before, const auto& after) {
    const observe::PodView& pod = after ? *after : *before;
    if (pod.gang) parts_.enqueue(kube::key_of(pod.meta.ns, pod.gang->job_name));
    // Room becomes free when a pod ends; a gang's own progress frees none.
    const bool freed = before && !before->terminal() && (!after || after->terminal());
    if (freed) parts_.enqueue(kScheduleKey);
  });
  parts_.stores.nodes.subscribe([this](const auto& before, const auto& after) {
    const bool same = before && after && before->ready == after->ready &&
                      before->unschedulable == after->unschedulable &&
                      before->allocatable == after->allocatable &&
                      before->labels == after->labels &&
                      before->taints.size() == after->taints.size();
    if (!before && after && marks_nodes())
      parts_.enqueue(kNodeKey + after->meta.name);  // a new node object may lack its marks
    if (same) return;
    parts_.enqueue(kScheduleKey);
    const std::string& name = (after ? *after : *before).meta.name;
    if (after && after->ready) return;
    for (const auto& pod : parts_.stores.pods.list()) {
      if (pod->gang && pod->node == name)
        parts_.enqueue(kube::key_of(pod->meta.ns, pod->gang->job_name));
    }
  });
  parts_.stores.quotas.subscribe(
      [this](const auto&, const auto&) { parts_.enqueue(kScheduleKey); });
  parts_.stores.fabrics.subscribe([this](const auto& before, const auto& after) {
    if (before && after && before->same_word(*after)) return;
    parts_.enqueue(kScheduleKey);
    if (after && marks_nodes()) parts_.enqueue(kNodeKey + after->meta.name);
  });
  parts_.stores.priorities.subscribe(
      [this](const auto&, const auto&) { parts_.enqueue(kScheduleKey); });
  parts_.stores.profiles.subscribe([this](const auto& before, const auto& after) {
    // Only waiting jobs are told: a placed gang keeps the profile that it was placed with.
    const std::string& name = (after ? *after : *before).meta.name;
    if (after && !after->errors.empty())
      spdlog::warn("RuntimeProfile {} cannot be used: {}", name,
                   api::to_error(after->errors).message);
    for (const auto& job : parts_.stores.jobs.list()) {
      const bool waits = job->errors.empty() && !job->status.placed() && !job->status.finished();
      if (waits && job->job.spec.runtime_profile == name)
        parts_.enqueue(kube::key_of(job->meta.ns, job->meta.name));
    }
  });
}

std::shared_ptr<JobState> Controller::state_of(const observe::JobView& job) {
  const auto known = states_.find(job.meta.uid);
  if (known == states_.end())
    forget(kube::key_of(job.meta.ns, job.meta.name), job.meta.uid);  // an earlier job of this name
  auto& state = states_[job.meta.uid];
  if (!state) {
    state = std::make_shared<JobState>();
    state->uid = job.meta.uid;
    state->key = kube::key_of(job.meta.ns, job.meta.name);
    uid_of_key_[state->key] = job.meta.uid;
  }
  return state;
}

JobPtr Controller::newest(const std::shared_ptr<const observe::JobView>& cached,
                          const JobState& state) const {
  return state.latest && state.latest->meta.uid == cached->meta.uid &&
                 state.latest->meta.resource_version > cached->meta.resource_version
             ? state.latest
             : cached;
}

void Controller::forget(const std::string& key, const std::string& uid) {
  const auto known = uid_of_key_.find(key);
  if (known == uid_of_key_.end() || known->second == uid) return;
  if (const auto it = states_.find(known->second); it != states_.end()) {
    if (!it->second->phase.empty()) --counters_.jobs_by_phase[it->second->phase];
    states_.erase(it);
  }
  queued_.erase(known->second);
  wants_node_.erase(known->second);
  uid_of_key_.erase(known);
}

Outcome Controller::reconcile(const std::string& key) {
  if (key == kScheduleKey) {
    schedule();
    return {};
  }
  if (key.starts_with(kNodeKey)) return mark(key.substr(kNodeKey.size()));
  return reconcile_job(key);
}

bool Controller::marks_nodes() const {
  const MarkSettings& marks = actuator_.settings().marks;
  return marks.labels || marks.taint;
}

Outcome Controller::mark(const std::string& node) {
  const auto fabric = parts_.stores.fabrics.get(node);
  if (!fabric) return {};
  const auto done = mark_node(parts_.api, *fabric, actuator_.settings().marks);
  if (done) return {};
  if (done.error().code != Code::kConflict)
    spdlog::warn("node {}: {}", node, to_string(done.error()));
  return {true, std::nullopt};
}

Outcome Controller::reconcile_job(const std::string& key) {
  const auto cached = parts_.stores.jobs.get(key);
  std::shared_ptr<JobState> state;
  JobPtr job;
  plan::Memory memory;
  {
    const std::lock_guard lock(mutex_);
    ++counters_.reconciles;
    forget(key, cached ? cached->meta.uid : "");
    if (!cached) return {};
    state = state_of(*cached);
    job = newest(cached, *state);
    if (parts_.stores.pods.resource_version() < state->pods_version) return {false, kCacheWait};
  }
  const auto pods = parts_.stores.pods.by_index(job->meta.uid);
  if (job->status.is_true("Running") && !job->status.finished())
    read_summary(job, state, pods, false);
  const auto decide = [&] {
    {
      const std::lock_guard lock(mutex_);
      memory = state->memory;
    }
    const std::string& profile = job->job.spec.runtime_profile;
    return plan::plan_job(
        {*job, pods, [this](const std::string& name) { return parts_.stores.nodes.get(name); },
         parts_.clock.wall(), memory,
         parts_.stores.profiles.get(profile.empty() ? api::kDefaultProfile : profile)});
  };
  plan::Plan plan = decide();
  if ((plan.queued || !plan.find_nodes.empty()) && !look_around(job, state, plan.queued))
    plan = decide();
  if (plan.status.placed() && !job->status.placed() && !prepare(job, state, plan)) plan = decide();
  const bool replaces = std::any_of(plan.creates.begin(), plan.creates.end(),
                                    [](const auto& create) { return !create.gated; });
  if (replaces && plan.status != job->status) {
    // The launchers may have restarted ranks since the last read: give the replacement their count.
    read_summary(job, state, pods, true);
    plan = decide();
  }
  return carry_out(job, state, plan);
}

bool Controller::prepare(const JobPtr& job, const std::shared_ptr<JobState>& state,
                         const plan::Plan& plan) {
  // Check first: no placement is recorded for a gang whose pods the server would refuse.
  Done done;
  std::string priority;
  int value = 0;
  if (auto refused = priority_of(*job, priority, value)) {
    done.refusal = std::move(refused);
  } else if (!state->surroundings) {
    auto surroundings = actuator_.surround(job->job);
    if (surroundings) {
      state->surroundings = std::move(*surroundings);
    } else {
      done = surroundings.error();
    }
  }
  if (!done.refusal && !done.error &&
      (state->checked_generation != job->job.metadata.generation ||
       state->checked_priority != priority)) {
    done = actuator_.dry_run(job->job, plan, *state->surroundings, priority);
    if (!done.refusal && !done.error) {
      state->checked_generation = job->job.metadata.generation;
      state->checked_priority = priority;
    }
  }
  if (!done.refusal && !done.error && mounts_claims(job->job.spec))
    done = look_at_volumes(job, state);
  if (!done.refusal && !done.error) return true;
  put_off(*state, std::move(done));
  return false;
}

void Controller::read_summary(const JobPtr& job, const std::shared_ptr<JobState>& state,
                              const std::vector<std::shared_ptr<const observe::PodView>>& pods,
                              bool now) {
  if (!parts_.summaries) return;
  const auto since = parts_.clock.steady() - state->last_poll;
  if (since < (now ? std::chrono::seconds(1) : poll_interval(job->status))) return;
  for (const auto& pod : pods) {
    if (!pod->gang || pod->gang->node_rank != 0 || pod->gang->ip.empty() ||
        pod->gang->trainer != observe::TrainerState::kRunning)
      continue;
    if (!state->surroundings) {
      auto surroundings = actuator_.surround(job->job);
      if (!surroundings) return;
      state->surroundings = std::move(*surroundings);
    }
    state->last_poll = parts_.clock.steady();
    const auto text = parts_.summaries(pod->gang->ip, state->surroundings->token);
    if (!text) return;  // the launcher may still be starting; the next poll asks again
    if (auto report = status::read_report(*text)) {
      const std::lock_guard lock(mutex_);
      state->memory.summary = std::move(*report);
    }
    return;
  }
}

}  // namespace paceline::apply
