// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "operator/apply/controller.hpp"

#include <algorithm>

#include "operator/apply/job_state.hpp"
#include "operator/status/training.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
constexpr auto kFirstPoll = std::chrono::seconds(2);  // until the first step is seen
constexpr auto kPoll = std::chrono::seconds(15);
constexpr auto kCacheWait = std::chrono::seconds(1);

bool has_step(const api::JobStatus& status) {
  return status.training.is_object() && status.training.value("step", std::int64_t{0}) > 0;
}

}  // namespace

json merge_diff(const json& before, const json& after) {
  json patch = json::object();
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old == before.end()) {
      patch[key] = value;
    } else if (*old != value) {
      patch[key] = old->is_object() && value.is_object() ? merge_diff(*old, value) : value;
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!after.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

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
    // Room appears when a pod ends; a gang's own progress makes none.
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
      parts_.enqueue(kNodeKey + after->meta.name);  // it may have come back without
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
    // Only who waits for it hears of a change: a gang keeps what it was placed with.
    const std::string& name = (after ? *after : *before).meta.name;
    if (after && !after->errors.empty())
      spdlog::warn("RuntimeProfile {} serves nobody: {}", name,
                   api::to_error(after->errors).message);
    for (const auto& job : parts_.stores.jobs.list()) {
      const bool waits = job->errors.empty() && !job->status.placed() && !job->status.finished();
      if (waits && job->job.spec.runtime_profile == name)
        parts_.enqueue(kube::key_of(job->meta.ns, job->meta.name));
    }
  });
}

std::shared_ptr<Controller::JobState> Controller::state_of(const observe::JobView& job) {
  const auto known = states_.find(job.meta.uid);
  if (known == states_.end())
    forget(kube::key_of(job.meta.ns, job.meta.name), job.meta.uid);  // an earlier life of the name
  auto& state = states_[job.meta.uid];
  if (!state) {
    state = std::make_shared<JobState>();
    state->uid = job.meta.uid;
    state->key = kube::key_of(job.meta.ns, job.meta.name);
    uid_of_key_[state->key] = job.meta.uid;
  }
  return state;
}

Controller::JobPtr Controller::newest(const std::shared_ptr<const observe::JobView>& cached,
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
    // The launchers may have restarted ranks since the last look: seed the newcomer with their
    // count.
    read_summary(job, state, pods, true);
    plan = decide();
  }
  return carry_out(job, state, plan);
}

bool Controller::prepare(const JobPtr& job, const std::shared_ptr<JobState>& state,
                         const plan::Plan& plan) {
  // Nothing is put on record for a gang whose pods the server would refuse anyway.
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

Outcome Controller::carry_out(const JobPtr& job, const std::shared_ptr<JobState>& state,
                              plan::Plan& plan) {
  Outcome outcome{false, plan.requeue_after};
  JobPtr current = job;
  if (plan.status != job->status) {
    auto written = write_status(job, state, plan);
    if (!written) return written.error();
    current = *written;
  } else if (plan.acts()) {
    const auto newest = confirm(job, state);
    if (!newest) return {true, std::nullopt};
    if (!*newest) return {false, std::chrono::milliseconds(0)};
  }
  const auto holds = [](const api::JobStatus& status) {
    return status.placed() && !status.finished();
  };
  bool want_schedule = holds(job->status) && !holds(plan.status);
  {
    const std::lock_guard lock(mutex_);
    if (plan.back_off) {
      outcome.again = state->back_off(parts_.clock.wall());
      plan.queued = false;
    }
    if (plan.queued) {
      want_schedule = want_schedule || plan.look_again;
      want_schedule = queued_.insert(state->uid).second || !state->memory.waiting || want_schedule;
    } else {
      queued_.erase(state->uid);
      if (!plan.status.placed()) {
        state->memory.waiting.reset();
        state->memory.admission.reset();
      }
    }
    if (plan.find_nodes.empty()) {
      wants_node_.erase(state->uid);
    } else {
      auto& wanted = wants_node_[state->uid];
      const bool news = wanted.empty();
      wanted.insert(plan.find_nodes.begin(), plan.find_nodes.end());
      want_schedule = want_schedule || news;
    }
  }
  for (const std::string& name : plan.check_gone) {
    const auto gone = actuator_.gone(job->job, name);
    const std::lock_guard lock(mutex_);
    if (gone && *gone) state->memory.gone.insert(name);
    outcome.failed = outcome.failed || !gone;
    outcome.again = gone && *gone ? std::chrono::milliseconds(0) : std::chrono::milliseconds(200);
  }
  Done total;
  if (auto early = act(current, state, plan, total)) outcome = *early;
  {
    const std::lock_guard lock(mutex_);
    state->pods_version = std::max(state->pods_version, total.pods_version);
    counters_.pods_created += total.created;
    counters_.pods_ungated += total.ungated;
    counters_.pods_deleted += total.deleted;
  }
  if (plan.poll_training && parts_.summaries) {
    const auto interval = has_step(plan.status) ? kPoll : kFirstPoll;
    if (!outcome.again || *outcome.again > interval) outcome.again = interval;
  }
  if (want_schedule) parts_.enqueue(kScheduleKey);
  return outcome;
}

std::optional<Outcome> Controller::act(const JobPtr& job, const std::shared_ptr<JobState>& state,
                                       const plan::Plan& plan, Done& total) {
  const auto absorb = [&](Done done) -> std::optional<Outcome> {
    total.pods_version = std::max(total.pods_version, done.pods_version);
    total.created += done.created;
    total.ungated += done.ungated;
    total.deleted += done.deleted;
    if (done.refusal) {
      const std::lock_guard lock(mutex_);
      state->memory.refusal = done.refusal;
      return Outcome{false, std::chrono::milliseconds(0)};
    }
    if (done.error) {
      spdlog::warn("{}: {}", state->key, to_string(*done.error));
      const std::lock_guard lock(mutex_);
      ++counters_.errors;
      return Outcome{true, std::nullopt};
    }
    return std::nullopt;
  };
  if (!plan.deletes.empty()) {
    if (auto stop = absorb(actuator_.remove(job->job, plan.deletes))) return stop;
  }
  if (!plan.creates.empty()) {
    if (!state->surroundings) {
      auto surroundings = actuator_.surround(job->job);
      if (!surroundings) return absorb(surroundings.error());
      state->surroundings = std::move(*surroundings);
    }
    std::string priority;
    int value = 0;
    if (const auto refused = priority_of(*job, priority, value))
      return absorb(Done{refused, std::nullopt, 0, 0, 0, 0});
    if (auto stop = absorb(actuator_.create(job->job, plan, *state->surroundings, priority)))
      return stop;
  }
  if (!plan.ungates.empty()) {
    if (auto stop = absorb(actuator_.ungate(job->job, plan.ungates))) return stop;
  }
  if (plan.delete_job) return absorb(actuator_.remove_job(job->job));
  return std::nullopt;
}

std::expected<Controller::JobPtr, Outcome> Controller::write_status(
    const JobPtr& job, const std::shared_ptr<JobState>& state, const plan::Plan& plan) {
  const api::JobStatus& status = plan.status;
  // A status that was never written has no fields at all, not even those that read as zero.
  const json before =
      job->status == api::JobStatus{} ? json::object() : api::write_status(job->status);
  json patch = {
      {"metadata",
       {{"resourceVersion", std::to_string(job->meta.resource_version)}, {"uid", job->meta.uid}}},
      {"status", merge_diff(before, api::write_status(status))}};
  kube::PatchOptions options;
  options.subresource = "status";
  const auto answer =
      parts_.api.patch(kube::kTrainingJobs, job->meta.ns, job->meta.name, patch.dump(), options);
  if (!answer) {
    const bool stale =
        answer.error().code == Code::kConflict || answer.error().code == Code::kNotFound;
    if (!stale) spdlog::warn("{}: status: {}", state->key, to_string(answer.error()));
    // Written or not, or overtaken: read what there is before planning again.
    const auto found = parts_.api.get(kube::kTrainingJobs, job->meta.ns, job->meta.name);
    const std::lock_guard lock(mutex_);
    ++(stale ? counters_.conflicts : counters_.errors);
    if (found) {
      if (auto view = observe::project_job(*found); view && view->meta.uid == job->meta.uid) {
        state->latest = std::make_shared<const observe::JobView>(std::move(*view));
        return std::unexpected(Outcome{!stale, std::chrono::milliseconds(0)});
      }
    }
    return std::unexpected(Outcome{true, std::nullopt});
  }
  auto view = observe::project_job(*answer);
  if (!view) return std::unexpected(Outcome{true, std::nullopt});
  auto written = std::make_shared<const observe::JobView>(std::move(*view));
  {
    const std::lock_guard lock(mutex_);
    ++counters_.status_writes;
    state->latest = written;
    if (!state->phase.empty()) --counters_.jobs_by_phase[state->phase];
    ++counters_.jobs_by_phase[state->phase = status.phase];
    plan::Memory& memory = state->memory;
    if (status.training != job->status.training) memory.training_written = parts_.clock.wall();
    if (status.placed()) {
      memory.refusal.reset();
      memory.admission.reset();
      memory.waiting.reset();
      if (status.is("Placed", "Bound")) memory.retries = 0;
    } else {
      memory.refusal.reset();
      memory.preempted_by.clear();
      memory.summary.reset();
    }
    // it speaks of the gang before the replacement
    if (!plan.creates.empty()) memory.summary.reset();
    // New pods are on record: what was found out for the last replacement does not serve the next.
    if (!std::ranges::equal(status.roles, job->status.roles, {}, &api::RoleStatus::incarnations,
                            &api::RoleStatus::incarnations)) {
      memory.gone.clear();
      memory.replacement_nodes.clear();
    }
  }
  if (parts_.phase_listener && status.phase != job->status.phase)
    parts_.phase_listener(job->job, job->status, status);
  return written;
}

Result<bool> Controller::confirm(const JobPtr& job, const std::shared_ptr<JobState>& state) {
  // Always asked anew: since our own last write another leader may have taken over, and this
  // process may have slept through it.
  const auto found = parts_.api.get(kube::kTrainingJobs, job->meta.ns, job->meta.name);
  if (!found) return std::unexpected(found.error());
  auto view = observe::project_job(*found);
  if (!view) return std::unexpected(view.error());
  if (view->meta.uid != job->meta.uid)
    return fail(Code::kNotFound, Origin::kKube, "the job was deleted");
  const std::lock_guard lock(mutex_);
  if (view->meta.resource_version == job->meta.resource_version) return true;
  state->latest = std::make_shared<const observe::JobView>(std::move(*view));
  return false;
}

void Controller::read_summary(const JobPtr& job, const std::shared_ptr<JobState>& state,
                              const std::vector<std::shared_ptr<const observe::PodView>>& pods,
                              bool now) {
  if (!parts_.summaries) return;
  const auto since = parts_.clock.steady() - state->last_poll;
  if (since < (now ? std::chrono::seconds(1) : has_step(job->status) ? kPoll : kFirstPoll)) return;
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
    if (!text) return;  // the launcher may be busy starting; the next poll asks again
    if (auto report = status::read_report(*text)) {
      const std::lock_guard lock(mutex_);
      state->memory.summary = std::move(*report);
    }
    return;
  }
}

}  // namespace paceline::apply
