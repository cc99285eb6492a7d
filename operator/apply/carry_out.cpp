// SPDX-License-Identifier: Apache-2.0
// How the Controller carries out a plan: it writes the status first, then acts.
#include "common/base/log.hpp"

#include <algorithm>
#include <utility>

#include "operator/apply/controller.hpp"
#include "operator/apply/merge_diff.hpp"
#include "operator/status/phase.hpp"
#include "operator/status/training.hpp"

namespace paceline::apply {

using nlohmann::json;

namespace {

constexpr std::chrono::nanoseconds kCountInterval = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kFirstLook = std::chrono::seconds(1);
constexpr std::chrono::nanoseconds kLookPause = std::chrono::seconds(10);  // plans wait for 15
// A job may alternate between reasons why it waits.
constexpr std::chrono::minutes kTellAgain{10};

/// True if the two differ only in what follows from the number of pods in each state.
bool differ_in_counts_only(const api::JobStatus& before, api::JobStatus after) {
  if (before.phase != after.phase || before.conditions.size() != after.conditions.size() ||
      before.roles.size() != after.roles.size())
    return false;
  after.pod_counts = before.pod_counts;
  after.message = before.message;
  for (std::size_t i = 0; i < after.roles.size(); ++i) {
    after.roles[i].ready = before.roles[i].ready;
    after.roles[i].succeeded = before.roles[i].succeeded;
    after.roles[i].failed = before.roles[i].failed;
  }
  for (std::size_t i = 0; i < after.conditions.size(); ++i)
    after.conditions[i].message = before.conditions[i].message;
  return after == before;
}

}  // namespace

std::optional<std::chrono::nanoseconds> Controller::count_pause(const JobState& state,
                                                                const api::JobStatus& before,
                                                                const plan::Plan& plan) const {
  const bool only_counts = !plan.acts() && plan.check_gone.empty() && plan.find_nodes.empty() &&
                           plan.status != before && differ_in_counts_only(before, plan.status);
  if (!only_counts || !state.written_at) return std::nullopt;
  const auto left = *state.written_at + kCountInterval - parts_.clock.steady();
  return left > std::chrono::nanoseconds(0) ? std::optional<std::chrono::nanoseconds>(left)
                                            : std::nullopt;
}

std::optional<std::chrono::nanoseconds> Controller::first_pause(JobState& state,
                                                                const api::JobStatus& before,
                                                                const plan::Plan& plan) const {
  const bool only_new =
      before == api::JobStatus{} && plan.queued && !plan.acts() && plan.status.reason == "Queued";
  if (!only_new) return std::nullopt;
  if (!state.new_since) state.new_since = parts_.clock.steady();
  const auto left = *state.new_since + kFirstLook - parts_.clock.steady();
  return left > std::chrono::nanoseconds(0) ? std::optional<std::chrono::nanoseconds>(left)
                                            : std::nullopt;
}

Outcome Controller::carry_out(const JobPtr& job, const std::shared_ptr<JobState>& state,
                              plan::Plan& plan) {
  Outcome outcome{false, plan.requeue_after};
  JobPtr current = job;
  if (const auto left = count_pause(*state, job->status, plan)) {
    outcome.again = left;
    return outcome;
  }
  if (const auto left = first_pause(*state, job->status, plan)) {
    outcome.again = left;
  } else if (plan.status != job->status) {
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
    // A pass may wake the job, whose plan looks again.
    const SteadyTime now = parts_.clock.steady();
    if (plan.look_again && (!state->looked_at || now - *state->looked_at >= kLookPause)) {
      state->looked_at = now;
      want_schedule = true;
    }
    if (plan.bind_refusal) state->memory.bind_refusal = *plan.bind_refusal;
    if (plan.back_off) {
      outcome.again = state->back_off(parts_.clock.wall());
      plan.queued = false;
    }
    if (plan.queued) {
      want_schedule = queued_.insert(state->uid).second || !state->memory.waiting || want_schedule;
    } else {
      queued_.erase(state->uid);
      if (!plan.status.placed()) {
        state->memory.waiting.reset();
        // The dropped placement leaves room that no event announces.
        if (std::exchange(state->memory.admission, std::nullopt)) want_schedule = true;
      }
    }
    if (plan.find_nodes.empty()) {
      wants_node_.erase(state->uid);
    } else {
      auto& wanted = wants_node_[state->uid];
      for (const int rank : plan.find_nodes)
        want_schedule = wanted.insert(rank).second || want_schedule;
    }
    want_schedule = note_growth(*state, plan) || want_schedule;
  }
  if (!plan.check_gone.empty()) {
    const Gone gone = actuator_.gone(job->job, plan.check_gone);
    const std::lock_guard lock(mutex_);
    state->memory.gone.insert(gone.pods.begin(), gone.pods.end());
    outcome.failed = outcome.failed || gone.error;
    if (gone.error) note_failure(*state, "pods: " + to_string(*gone.error));
    outcome.again = std::chrono::milliseconds(gone.pods.empty() ? 200 : 0);
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
  if (want_schedule) parts_.enqueue(kScheduleKey);
  return outcome;
}

bool Controller::note_growth(JobState& state, const plan::Plan& plan) {
  bool news = plan.drop_admission && std::exchange(state.memory.admission, std::nullopt);
  if (plan.grow_by > 0) {
    news = std::exchange(wants_growth_[state.uid], plan.grow_by) != plan.grow_by || news;
  } else {
    if (wants_growth_.erase(state.uid) > 0) {
      state.memory.grow.reset();
      state.memory.displaced.clear();
    }
    state.memory.no_growth.clear();
    // Whether it was used or not: from now on the placement on record counts.
    news = std::exchange(state.memory.growth, std::nullopt) || news;
  }
  return news;
}

std::optional<Outcome> Controller::act(const JobPtr& job, const std::shared_ptr<JobState>& state,
                                       plan::Plan& plan, Done& total) {
  const auto absorb = [&](Done done) -> std::optional<Outcome> {
    total.pods_version = std::max(total.pods_version, done.pods_version);
    total.created += done.created;
    total.ungated += done.ungated;
    total.deleted += done.deleted;
    if (done.refusal) {
      const std::lock_guard lock(mutex_);
      note_failure(*state, done);
      state->memory.refusal = done.refusal;
      state->checked_spec.clear();  // the dry run no longer tells the truth
      if (status::replaces_pods(plan.status)) state->back_off(parts_.clock.wall());
      return Outcome{false, std::chrono::milliseconds(0)};
    }
    if (done.error) {
      log_about(state->key, spdlog::level::warn, "{}", to_string(*done.error));
      const std::lock_guard lock(mutex_);
      note_failure(*state, done);
      ++counters_.errors;
      return Outcome{true, std::nullopt};
    }
    return std::nullopt;
  };
  // A failed delete is tried again, and holds nothing back until then: no action of a plan needs
  // its deletes to have succeeded.
  std::optional<Outcome> undeleted;
  if (!plan.deletes.empty()) undeleted = absorb(actuator_.remove(job->job, plan.deletes));
  if (!plan.creates.empty()) {
    const auto surroundings = surround(job, *state, true);
    if (!surroundings) return absorb(surroundings.error());
    std::string priority;
    int value = 0;
    if (const auto refused = priority_of(*job, priority, value))
      return absorb(Done{refused, std::nullopt, 0, 0, 0, 0});
    if (!plan.status.pod_group.empty()) {
      if (auto stop = absorb(group(*job, *state, plan.status.pod_group, priority, false)))
        return stop;
    }
    if (uses_host_network(job->job.spec)) {
      if (auto none = host_ports_.choose(job->job, plan.creates))
        return absorb(Done{std::move(none), std::nullopt, 0, 0, 0, 0});
    }
    if (auto stop = absorb(actuator_.create(job->job, plan, *surroundings, priority))) return stop;
    const std::lock_guard lock(mutex_);
    state->memory.refusal.reset();
  }
  if (!plan.ungates.empty()) {
    if (auto stop = absorb(actuator_.ungate(job->job, plan.ungates))) return stop;
  }
  if (plan.workload_step != plan::WorkloadStep::kNone) {
    Done done = tell_kueue(job, plan);
    if (done.refusal) {
      put_off(*state, std::move(done));
      return Outcome{false, std::chrono::milliseconds(0)};
    }
    if (auto stop = absorb(std::move(done))) return stop;
  }
  if (plan.keep_pod_group) {
    if (auto stop = absorb(keep_group(*job, *state, plan.status.pod_group))) return stop;
  }
  if (auto stop = hold_room(job, state, plan, total)) return stop;
  if (auto stop = request_nodes(job, state, plan)) return stop;
  if (plan.delete_job) {
    if (auto stop = absorb(actuator_.remove_job(job->job))) return stop;
  }
  // Last, since it may never be allowed.
  if (plan.drop_pod_group) return drop_group(job, *state, plan.status.pod_group);
  return undeleted;
}

bool Controller::is_news(JobState& state, const api::JobStatus& before,
                         const api::JobStatus& now) const {
  const bool other_phase = before.phase != now.phase;
  if (now.phase != "Queued") return other_phase;
  if (other_phase) state.told_reasons.clear();
  if (before.reason == now.reason && !other_phase) return false;
  // That a job is queued says nothing yet: its next phase, or why it waits, does.
  if (now.reason == "Queued" && (before.phase.empty() || !other_phase)) return false;
  const SteadyTime at = parts_.clock.steady();
  const auto told = state.told_reasons.find(now.reason);
  if (told != state.told_reasons.end() && at - told->second < kTellAgain) return false;
  state.told_reasons[now.reason] = at;
  return true;
}

void Controller::tell(JobState& state, const JobPtr& job) {
  const JobPtr told = std::exchange(state.told, job);
  if (!told || !parts_.listener) return;
  const api::JobStatus& before = told->status;
  const api::JobStatus& now = job->status;
  if (is_news(state, before, now))
    parts_.listener(job->job, now, before.phase != now.phase ? News::kPhase : News::kReason);
  if (before.effects.empty() && !now.effects.empty())
    parts_.listener(job->job, now, News::kEffects);
}

Outcome Controller::look_after(const JobPtr& job, const std::shared_ptr<JobState>& state,
                               const Error& error) {
  const bool stale = error.code == Code::kConflict || error.code == Code::kNotFound;
  if (!stale) log_about(state->key, spdlog::level::warn, "status: {}", to_string(error));
  const auto found = parts_.api.get(kube::kTrainingJobs, job->meta.ns, job->meta.name);
  auto view = found ? observe::project_job(*found) : std::unexpected(found.error());
  const bool same_job = view && view->meta.uid == job->meta.uid;
  {
    const std::lock_guard lock(mutex_);
    ++(stale ? counters_.conflicts : counters_.errors);
    note_failure(*state, to_string(error));
    if (!same_job) return {true, std::nullopt};
    const bool unchanged = view->meta.resource_version == job->meta.resource_version;
    state->latest = std::make_shared<const observe::JobView>(std::move(*view));
    const bool refused = !stale && final_refusal(error);
    state->write_unknown = unchanged && !stale && !refused;
    // The write may still come, and would then take the room. So the job keeps it, and writes the
    // same again after the key's back-off. A pass would wake the job at once, without end.
    if (state->write_unknown) return {true, std::nullopt};
    // A job whose status may not be written holds no room, and asks for a place ever less often.
    if (refused) state->back_off(parts_.clock.wall());
    // What was not recorded may no longer do by the next try. While it is unknown whether it was
    // recorded, its room stays taken.
    if (std::exchange(state->memory.admission, std::nullopt)) parts_.enqueue(kScheduleKey);
    if (refused) return {true, std::nullopt};
    state->memory.replacement_nodes.clear();
    wants_node_.erase(state->uid);  // whoever still needs a node asks again
  }
  return {!stale, std::chrono::milliseconds(0)};
}

std::expected<JobPtr, Outcome> Controller::write_status(const JobPtr& job,
                                                        const std::shared_ptr<JobState>& state,
                                                        const plan::Plan& plan) {
  const api::JobStatus& status = plan.status;
  // A status that was never written has no fields at all, not even those whose value is zero.
  const json before =
      job->status == api::JobStatus{} ? json::object() : api::write_status(job->status);
  json patch = {
      {"metadata",
       {{"resourceVersion", std::to_string(job->meta.resource_version)}, {"uid", job->meta.uid}}},
      {"status", merge_diff(before, api::write_status(status))}};
  kube::PatchOptions options;
  options.subresource = "status";
  const std::string body = patch.dump();
  state->write_unknown = true;
  const auto answer =
      parts_.api.patch(kube::kTrainingJobs, job->meta.ns, job->meta.name, body, options);
  if (!answer) return std::unexpected(look_after(job, state, answer.error()));
  auto view = observe::project_job(*answer);
  if (!view) return std::unexpected(Outcome{true, std::nullopt});
  auto written = std::make_shared<const observe::JobView>(std::move(*view));
  {
    const std::lock_guard lock(mutex_);
    ++counters_.status_writes;
    state->written_at = parts_.clock.steady();
    state->write_unknown = false;
    state->latest = written;
    count_phase(*state, status.phase);
    const bool stays = status.placed() && job->status.placed() && status.elastic;
    if (stays && job->status.elastic && status.elastic->replicas != job->status.elastic->replicas)
      ++counters_.resizes;
    const auto& created = job->job.metadata.created;
    const bool starts = status.pod_group.empty() ? status.placed() && !job->status.placed()
                                                 : status.start_time && !job->status.start_time;
    if (starts && status.attempt == 0 && created)
      counters_.wait_times.add(std::max(parts_.clock.wall() - *created, WallTime::duration(0)));
    plan::Memory& memory = state->memory;
    if (status.training != job->status.training || status.effects != job->status.effects ||
        status.findings != job->status.findings || status.goodput != job->status.goodput)
      memory.training_written = parts_.clock.wall();
    if (status::other_findings(status.findings, job->status.findings))
      memory.findings_written = parts_.clock.wall();
    if (status.pod_group != job->status.pod_group) {
      memory.pod_group_gone = false;
      memory.pod_group_kept.clear();
    }
    // A refused replacement keeps its refusal until a later try succeeds.
    if (!job->status.placed() || !status.placed()) memory.refusal.reset();
    if (status.placed()) {
      memory.admission.reset();
      memory.waiting.reset();
      if (!job->status.placed()) {
        memory.grow.reset();
        memory.displaced.clear();
      }
      if (status.is("Placed", "Bound")) {
        memory.retries = 0;
        memory.bind_refusal = {};
      }
    } else {
      memory.preempted_by.clear();
      memory.summary.reset();
    }
    // it describes the gang before the replacement
    if (!plan.creates.empty()) memory.summary.reset();
    // New pods are on record: findings for the last replacement do not apply to the next one.
    if (!std::ranges::equal(status.roles, job->status.roles, {}, &api::RoleStatus::incarnations,
                            &api::RoleStatus::incarnations)) {
      // Replicas that fail alone may be lost and wait, while another one is replaced.
      if (!status.is_true(status::kReplacing)) memory.gone.clear();
      memory.replacement_nodes.clear();
      wants_node_.erase(state->uid);
      memory.no_replacement_node.clear();
      memory.homeless.clear();
    }
  }
  tell(*state, written);
  return written;
}

Result<bool> Controller::confirm(const JobPtr& job, const std::shared_ptr<JobState>& state) {
  // Ask every time: since the last write another leader may have taken over, and this process may
  // have been suspended meanwhile.
  const auto found = parts_.api.get(kube::kTrainingJobs, job->meta.ns, job->meta.name);
  if (!found) {
    const std::lock_guard lock(mutex_);
    note_failure(*state, to_string(found.error()));
    return std::unexpected(found.error());
  }
  auto view = observe::project_job(*found);
  if (!view) return std::unexpected(view.error());
  if (view->meta.uid != job->meta.uid)
    return fail(Code::kNotFound, Origin::kKube, "the job was deleted");
  const std::lock_guard lock(mutex_);
  if (view->meta.resource_version == job->meta.resource_version) return true;
  state->latest = std::make_shared<const observe::JobView>(std::move(*view));
  return false;
}

}  // namespace paceline::apply
