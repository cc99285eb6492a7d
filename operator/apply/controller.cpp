// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "operator/apply/controller.hpp"

#include <algorithm>

#include "operator/apply/facts/job_facts.hpp"
#include "operator/apply/kueue/workload.hpp"
#include "operator/plan/job_plan.hpp"
#include "operator/status/phase.hpp"
#include "operator/status/training.hpp"

namespace paceline::apply {
namespace {

constexpr auto kCacheWait = std::chrono::seconds(1);

Done refused_with(plan::Waiting refusal) {
  Done done;
  done.refusal = std::move(refusal);
  return done;
}

}  // namespace

Controller::Controller(Parts parts, Settings settings)
    : parts_(std::move(parts)),
      actuator_(parts_.api, parts_.executor, std::move(settings), parts_.tokens),
      host_ports_(parts_.clock, parts_.stores.pods),
      requests_(parts_.api),
      poller_(parts_.clock, parts_.summaries,
              [this](const std::string& uid, std::optional<status::Report> report) {
                take_summary(uid, std::move(report));
              }) {}

Counters Controller::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Controller::subscribe() {
  parts_.stores.jobs.subscribe([this](const auto& before, const auto& after) {
    const observe::JobView& job = after ? *after : *before;
    parts_.enqueue(kube::key_of(job.meta.ns, job.meta.name));
    // Another queue or priority changes who is next.
    if (!after || (before && before->job.metadata.generation != after->job.metadata.generation))
      parts_.enqueue(kScheduleKey);
  });
  parts_.stores.pods.subscribe([this](const auto& before, const auto& after) {
    const observe::PodView& pod = after ? *after : *before;
    host_ports_.seen(pod);
    if (after && pod.gang && !pod.gang->termination_message.empty()) take_last_words(pod);
    if (pod.gang) parts_.enqueue(kube::key_of(pod.meta.ns, pod.gang->job_name));
    if (pod.placeholder) parts_.enqueue(kube::key_of(pod.meta.ns, pod.placeholder->job_name));
    // Room becomes free when a pod ends; a gang's own progress frees none.
    const bool freed = before && !before->over() && (!after || after->over());
    if (freed) parts_.enqueue(kScheduleKey);
  });
  parts_.stores.nodes.subscribe([this](const auto& before, const auto& after) {
    const bool same_marks = before && after && before->unschedulable == after->unschedulable &&
                            before->taints == after->taints;
    const bool same = same_marks && before->ready == after->ready &&
                      before->allocatable == after->allocatable && before->labels == after->labels;
    if (!before && after && marks_nodes())
      parts_.enqueue(kNodeKey + after->meta.name);  // a new node object may lack its marks
    if (same) return;
    parts_.enqueue(kScheduleKey);
    const std::string& name = (after ? *after : *before).meta.name;
    if (after && after->ready && (!before || same_marks)) return;
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
  parts_.stores.workloads.subscribe([this](const auto& before, const auto& after) {
    const observe::WorkloadView& workload = after ? *after : *before;
    if (!workload.job_uid.empty())
      parts_.enqueue(kube::key_of(workload.meta.ns, workload.job_name));
  });
  parts_.stores.local_queues.subscribe([this](const auto& before, const auto& after) {
    if (before && after && before->flavors == after->flavors) return;
    // Jobs that name it are Kueue's from now on, or no longer, or may ask for a level.
    const observe::LocalQueueView& queue = after ? *after : *before;
    for (const auto& job : parts_.stores.jobs.list()) {
      if (job->meta.ns == queue.meta.ns && !api::named_queue(job->job).empty())
        parts_.enqueue(kube::key_of(job->meta.ns, job->meta.name));
    }
  });
  parts_.stores.flavors.subscribe([this](const auto&, const auto&) { wake_for_levels(); });
  parts_.stores.topologies.subscribe([this](const auto&, const auto&) { wake_for_levels(); });
  parts_.stores.profiles.subscribe([this](const auto& before, const auto& after) {
    // Only waiting jobs are told: a placed gang keeps the profile that it was placed with.
    const std::string& name = (after ? *after : *before).meta.name;
    if (after) parts_.enqueue(kProfileKey + name);
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

void Controller::count_phase(JobState& state, const std::string& phase) {
  if (state.phase == phase) return;
  if (!state.phase.empty()) --counters_.jobs_by_phase[state.phase];
  if (!phase.empty()) ++counters_.jobs_by_phase[phase];
  state.phase = phase;
}

void Controller::forget(const std::string& key, const std::string& uid) {
  const auto known = uid_of_key_.find(key);
  if (known == uid_of_key_.end() || known->second == uid) return;
  if (const auto it = states_.find(known->second); it != states_.end()) {
    orphans_version_ = std::max(orphans_version_, it->second->pods_version);
    count_phase(*it->second, "");
    states_.erase(it);
  }
  poller_.forget(known->second);
  queued_.erase(known->second);
  wants_node_.erase(known->second);
  wants_growth_.erase(known->second);
  uid_of_key_.erase(known);
}

Outcome Controller::reconcile(const std::string& key) {
  if (key == kScheduleKey) return {false, schedule()};
  if (key.starts_with(kNodeKey)) return mark(key.substr(kNodeKey.size()));
  if (key.starts_with(kProfileKey)) return judge_profile(key.substr(kProfileKey.size()));
  const SteadyTime began = parts_.clock.steady();
  const Outcome outcome = reconcile_job(key);
  const std::lock_guard lock(mutex_);
  counters_.reconcile_times.add(parts_.clock.steady() - began);
  return outcome;
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
    state->memory.unseen_nodes.clear();
    job = newest(cached, *state);
    // Jobs that an earlier operator wrote last are counted as well, and no other manager's.
    count_phase(*state, job->of_other_manager() ? "" : job->status.phase);
    if (parts_.stores.pods.resource_version() < state->pods_version) return {false, kCacheWait};
  }
  // Also a write that was applied although its answer was lost.
  tell(*state, job);
  const auto pods = parts_.stores.pods.by_index(observe::gang_index(job->meta.uid));
  const auto placeholders = parts_.stores.pods.by_index(observe::placeholder_index(job->meta.uid));
  watch_summary(job, state, pods);
  // Launchers gather by the Service and the Secret, which nothing watches.
  const bool ours = job->errors.empty() && !job->of_other_manager();
  const bool gathers = ours && job->status.placed() && !job->status.finished() &&
                       job->status.is_true("Placed") && !job->status.is_true("Running") &&
                       !job->job.metadata.deleting;
  if (!gathers) {
    state->surround_checks = 0;
  } else if (parts_.clock.steady() - state->surround_tried_at >= state->surroundings_hold()) {
    state->surround_tried_at = parts_.clock.steady();
    (void)surround(job, *state, true);
  }
  recall_requests();
  read_request(job, state);
  api::Provision way = api::Provision::kDisabled;
  std::vector<plan::Constraints> admitted;
  const auto decide = [&] {
    {
      const std::lock_guard lock(mutex_);
      memory = state->memory;
      way = way_to_ask(*job);
      admitted = admitted_constraints(*job, *state);
    }
    const std::string& profile = job->job.spec.runtime_profile;
    return plan::plan_job(
        {*job, pods, [this](const std::string& name) { return parts_.stores.nodes.get(name); },
         parts_.clock.wall(), memory,
         parts_.stores.profiles.get(profile.empty() ? api::kDefaultProfile : profile),
         [this] { return parts_.stores.nodes.list(); }, actuator_.settings().runtime_image,
         memory.admission && may_be_held_back(*job, *state), ask_kueue(*job), placeholders, way,
         admitted});
  };
  plan::Plan plan = decide();
  // An autoscaler's node may be newer than the cache, which another watch fills than that of pods.
  if (!plan.absent_nodes.empty() && !are_gone(*state, plan.absent_nodes)) plan = decide();
  if (learn_needs(job, state, plan)) plan = decide();
  if ((plan.queued && memory.waiting) || plan.grow_by > 0) look_for_autoscaler();
  // Refused here, a job neither waits in the queue nor evicts another one.
  const bool searches = plan.asks() || !plan.find_nodes.empty() || plan.grow_by > 0;
  if (searches && !look_around(job, state, plan)) plan = decide();
  if (plan.status.placed() && !job->status.placed()) {
    if (const auto pause = quota_pause(*job, *state)) return {false, pause};
    if (!prepare(job, state, plan) || !nodes_still_take(*job, *state)) plan = decide();
  }
  {
    const std::lock_guard lock(mutex_);
    const api::JobStatus& planned = plan.status;
    state->decision = {parts_.clock.wall(), planned.phase, planned.reason, planned.message,
                       actions_of(plan)};
  }
  const bool replaces = !plan.creates.empty() && status::replaces_pods(plan.status);
  // The launchers may have restarted ranks since the last read: give the replacement their count.
  if (replaces && plan.status != job->status && !summary_is_fresh(*state)) return {};
  Outcome outcome = carry_out(job, state, plan);
  if (gathers)
    outcome.again = std::min<std::chrono::nanoseconds>(
        outcome.again.value_or(state->surroundings_hold()), state->surroundings_hold());
  return outcome;
}

std::expected<Surroundings, Done> Controller::surround(const JobPtr& job, JobState& state,
                                                       bool again) {
  const SteadyTime now = parts_.clock.steady();
  if (state.surroundings && (!again || now - state.surrounded_at < state.surroundings_hold()))
    return *state.surroundings;
  auto surroundings = actuator_.surround(job->job, state.surroundings);
  if (!surroundings) {
    const std::lock_guard lock(mutex_);
    note_failure(state, surroundings.error());
    return surroundings;
  }
  if (state.surroundings) ++state.surround_checks;
  state.surroundings = *surroundings;
  state.surrounded_at = now;
  return surroundings;
}

Done Controller::check_pods(const JobPtr& job, const std::shared_ptr<JobState>& state,
                            const plan::Plan& plan) {
  std::string priority;
  int value = 0;
  if (auto refused = priority_of(*job, priority, value)) return refused_with(std::move(*refused));
  {
    const std::lock_guard lock(mutex_);
    if (state->checked_spec == job->fingerprint && state->checked_priority == priority) return {};
  }
  const auto surroundings = surround(job, *state, false);
  if (!surroundings) return surroundings.error();
  auto admitted = actuator_.dry_run(job->job, plan, *surroundings, priority);
  if (!admitted) return admitted.error();
  const std::lock_guard lock(mutex_);
  const std::vector<plan::Need> before = needs_of(*job, *state);
  state->asked_for_needs = true;
  state->admitted = std::move(*admitted);
  state->checked_spec = state->admitted_spec = job->fingerprint;
  state->checked_priority = priority;
  state->needs_spec.clear();
  // A full quota had hidden what the pods need: the placement was made for less.
  if (needs_of(*job, *state) != before && std::exchange(state->memory.admission, std::nullopt))
    parts_.enqueue(kScheduleKey);
  return {};
}

std::vector<plan::Need> Controller::known_needs(const observe::JobView& job,
                                                JobState& state) const {
  const std::lock_guard lock(mutex_);
  return needs_of(job, state);
}

bool Controller::prepare(const JobPtr& job, const std::shared_ptr<JobState>& state,
                         const plan::Plan& plan) {
  if (!plan.status.workload.empty()) {
    if (Done done = confirm_admission(parts_.api, *plan.workload); done.refusal || done.error) {
      put_off(*state, std::move(done));
      return false;
    }
  }
  // No placement is recorded for a gang whose pods the server would refuse.
  const std::vector<plan::Need> before = known_needs(*job, *state);
  Done done = check_pods(job, state, plan);
  if (!done.refusal && !done.error && known_needs(*job, *state) != before) return false;
  if (!done.refusal && !done.error && mounts_claims(job->job.spec))
    done = look_at_volumes(job, state);
  if (!done.refusal && !done.error && !plan.status.pod_group.empty())
    done = group(*job, *state, plan.status.pod_group, "", true);
  if (!done.refusal && !done.error) return true;
  put_off(*state, std::move(done));
  return false;
}

void Controller::watch_summary(const JobPtr& job, const std::shared_ptr<JobState>& state,
                               const std::vector<std::shared_ptr<const observe::PodView>>& pods) {
  if (!parts_.summaries) return;
  const auto rank_zero = std::ranges::find_if(pods, [](const auto& pod) {
    return pod->gang && pod->gang->node_rank == 0 && !pod->gang->ip.empty() &&
           pod->gang->trainer == observe::TrainerState::kRunning;
  });
  // With spares the launchers may start before all pods run.
  const bool trains = job->status.is_true("Running") || job->status.is_true("Restarting") ||
                      job->job.spec.failure_policy.spares > 0;
  if (rank_zero == pods.end() || !trains || !job->status.placed() || job->status.finished())
    return poller_.forget(state->uid);
  const auto token = actuator_.token_of(job->job);
  if (!token) return;
  const observe::GangMember& launcher = *(*rank_zero)->gang;
  const auto node = [this](const std::string& name) { return parts_.stores.nodes.get(name); };
  Warnings warned = state->warned_nodes.look(pods, node, parts_.clock.steady());
  poller_.watch(state->uid, {{launcher.ip, launcher.http_port, *token, std::move(warned)},
                             poll_interval(job->status)});
}

bool Controller::summary_is_fresh(const JobState& state) {
  constexpr auto kFresh = std::chrono::seconds(5);
  {
    const std::lock_guard lock(mutex_);
    if (state.polled_at && parts_.clock.steady() - *state.polled_at < kFresh) return true;
  }
  return !poller_.hurry(state.uid);
}

void Controller::take_summary(const std::string& uid, std::optional<status::Report> report) {
  const std::lock_guard lock(mutex_);
  const auto known = states_.find(uid);
  if (known == states_.end()) return;
  JobState& state = *known->second;
  state.polled_at = parts_.clock.steady();
  if (report) {
    state.memory.checkpoint = status::later_checkpoint(state.memory.checkpoint, report->checkpoint);
    state.memory.summary = std::move(report);
    state.memory.summary_at = parts_.clock.wall();
  }
  parts_.enqueue(state.key);
}

}  // namespace paceline::apply
