// SPDX-License-Identifier: Apache-2.0
// What the Controller tells the scheduler about a job: what its pods need, which nodes its volumes
// allow, and its priority.
#include "common/base/log.hpp"

#include <algorithm>
#include <utility>

#include "operator/api/elastic.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/apply/agents.hpp"
#include "operator/apply/kueue/workload.hpp"
#include "operator/apply/scheduler_pass.hpp"
#include "operator/plan/placement/constraints.hpp"
#include "operator/plan/placement/grants.hpp"
#include "operator/plan/placement/quota.hpp"
#include "operator/plan/policies/policies.hpp"
#include "operator/plan/queue/scheduler.hpp"
#include "operator/render/pod.hpp"

namespace paceline::apply {
namespace {

constexpr auto kQuotaInterval = std::chrono::seconds(1);
/// Placeholders stop in a moment. Then something else uses the quota, and the API server decides.
constexpr auto kQuotaPatience = std::chrono::seconds(30);
/// An agent renews its Lease every 10 s; reading more often is no use.
constexpr auto kAgentsInterval = std::chrono::seconds(10);
/// Volumes that are free for a job's claims come and go.
constexpr auto kVolumesInterval = std::chrono::seconds(10);
constexpr std::chrono::nanoseconds kPassWait = std::chrono::milliseconds(200);

}  // namespace

const std::vector<plan::Need>& Controller::needs_of(const observe::JobView& job,
                                                    JobState& state) const {
  if (state.needs_spec != job.fingerprint) learn_needs_of(job, state);
  if (const auto& elastic = job.job.spec.elastic; elastic && elastic->role < state.needs.size()) {
    // A placement that is not on record yet may be smaller than the job wants.
    const auto& admission = state.memory.admission;
    const auto size = admission ? api::elastic_size(job.job.spec, admission->size()) : std::nullopt;
    state.needs[elastic->role].count = size.value_or(job.job.spec.roles[elastic->role].replicas);
  }
  return state.needs;
}

void Controller::learn_needs_of(const observe::JobView& job, JobState& state) const {
  if (state.admitted_spec != job.fingerprint) state.admitted.clear();
  state.needs.clear();
  for (const api::Replica& replica : api::replicas_of(job.job.spec)) {
    if (replica.index != 0) continue;
    const api::Role& role = job.job.spec.roles[static_cast<std::size_t>(replica.role)];
    plan::Need& need = state.needs.emplace_back();
    need.role = role.name;
    need.count = role.replicas;
    // Until the dry run has answered, the rendered pod is the best guess.
    plan::Admitted admitted =
        state.admitted.empty()
            ? plan::read_admitted(render::render_pod(job.job, replica, {}).dump())
                  .value_or(plan::Admitted{})
            : state.admitted[static_cast<std::size_t>(replica.role)];
    need.each = std::move(admitted.each);
    need.constraints = std::move(admitted.constraints);
    need.accelerators = api::has_accelerators(role);
    need.constraints.gpu_direct = need.accelerators && api::requires_gpu_direct(job.job.spec);
    if (state.volumes && state.volumes_generation == job.job.metadata.generation)
      need.constraints.volumes = (*state.volumes)[static_cast<std::size_t>(replica.role)];
  }
  state.needs_spec = job.fingerprint;
}

bool Controller::learn_needs(const JobPtr& job, const std::shared_ptr<JobState>& state,
                             const plan::Plan& plan) {
  const auto& elastic = job->job.spec.elastic;
  const bool shrinks =
      elastic && elastic->replicas < job->job.spec.roles[elastic->role].replicas && is_tended(*job);
  {
    const std::lock_guard lock(mutex_);
    // A pod may be missing that the plan does not create now: its job pauses, or does without it.
    const bool missing = std::exchange(state->needs_missed, false) || !plan.creates.empty();
    if (state->asked_for_needs || !job->status.placed() || !(missing || shrinks)) return false;
  }
  (void)check_pods(job, state, plan);
  const std::lock_guard lock(mutex_);
  state->asked_for_needs = true;
  parts_.enqueue(kScheduleKey);
  return true;
}

std::vector<plan::Constraints> Controller::admitted_constraints(const observe::JobView& job,
                                                                const JobState& state) const {
  std::vector<plan::Constraints> constraints;
  if (!job.job.spec.elastic || state.admitted_spec != job.fingerprint) return constraints;
  for (const plan::Admitted& role : state.admitted) constraints.push_back(role.constraints);
  return constraints;
}

std::vector<plan::Need> Controller::needs_now(const observe::JobView& job, JobState& state) const {
  std::vector<plan::Need> needs = needs_of(job, state);
  const std::vector<std::string> excluded = plan::excluded_nodes(job.status, parts_.clock.wall());
  for (plan::Need& need : needs) need.constraints.excluded = excluded;
  return plan::with_grants(std::move(needs), look_at_kueue(parts_.stores, job).grants);
}

Done Controller::look_at_volumes(const JobPtr& job, const std::shared_ptr<JobState>& state) {
  auto volumes = read_volumes(parts_.api, job->job);
  if (!volumes) return volumes.error();
  const auto nodes = volumes->limited.empty()
                         ? std::vector<std::shared_ptr<const observe::NodeView>>()
                         : parts_.stores.nodes.list();
  const std::lock_guard lock(mutex_);
  for (const LimitedClaim& claim : volumes->limited) {
    std::vector<observe::Resources> each;
    for (const plan::Need& need : needs_of(*job, *state)) each.push_back(need.each);
    if (auto refused = sharing_refusal(claim, job->job.spec, each, nodes)) {
      Done done;
      done.refusal = std::move(refused);
      return done;
    }
  }
  state->volumes = std::move(volumes->terms);
  state->volumes_generation = job->job.metadata.generation;
  state->volumes_read_at = parts_.clock.steady();
  state->memory.volumes_open = volumes->open;
  state->needs_spec.clear();
  return {};
}

bool Controller::look_around(const JobPtr& job, const std::shared_ptr<JobState>& state,
                             const plan::Plan& plan) {
  if (!know_volumes(job, state, plan.asks())) return false;
  Done done = look_at_agents(job->job);
  if (!done.refusal && !done.error) done = check_pods(job, state, plan);
  // The planner knows what a quota admits, and a gang may wait for it. A running gang is not held
  // back: gangTimeout bounds the search for a node.
  const bool full = done.refusal && done.refusal->reason == "QuotaExceeded";
  if ((!done.refusal && !done.error) || full || !plan.asks()) return true;
  put_off(*state, std::move(done));
  return false;
}

bool Controller::may_be_held_back(const observe::JobView& job, const JobState& state) const {
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::any_of(state.admitted, &plan::Admitted::held)) return true;
  }
  return std::ranges::any_of(parts_.stores.quotas.list(),
                             [&](const auto& quota) { return quota->meta.ns == job.meta.ns; });
}

std::optional<std::chrono::nanoseconds> Controller::quota_pause(const observe::JobView& job,
                                                                JobState& state) const {
  std::vector<observe::QuotaView> quotas;
  for (const auto& quota : parts_.stores.quotas.list()) {
    if (quota->meta.ns == job.meta.ns) quotas.push_back(*quota);
  }
  const std::lock_guard lock(mutex_);
  plan::QueuedGang gang;
  gang.needs = needs_now(job, state);
  if (state.memory.admission_slots) gang.needs = plan::with_slots(std::move(gang.needs));
  if (plan::quota_refusal(gang, quotas).empty()) {
    state.quota_full_since.reset();
    return std::nullopt;
  }
  const SteadyTime now = parts_.clock.steady();
  if (!state.quota_full_since) state.quota_full_since = now;
  if (now - *state.quota_full_since < kQuotaPatience) return kQuotaInterval;
  state.quota_full_since.reset();
  return std::nullopt;
}

bool Controller::nodes_still_take(const observe::JobView& job, JobState& state) {
  const std::lock_guard lock(mutex_);
  if (!state.memory.admission || api::backend_of(job.job.spec) != api::Backend::kNative)
    return true;
  std::size_t rank = 0;
  for (plan::Need& need : needs_now(job, state)) {
    need.constraints.gpu_direct = false;  // the scheduler has looked
    for (int i = 0; i < need.count && rank < state.memory.admission->size(); ++i) {
      const auto node = parts_.stores.nodes.get((*state.memory.admission)[rank++]);
      if (node != nullptr && plan::refusal(need.constraints, *node, nullptr).empty()) continue;
      state.memory.admission.reset();
      return false;
    }
  }
  return true;
}

bool Controller::are_gone(JobState& state, const std::set<std::string>& nodes) {
  std::set<std::string> unseen;
  std::string failure;
  for (const std::string& name : nodes) {
    const auto found = parts_.api.get(kube::kNodes, "", name);
    if (!found && found.error().code == Code::kNotFound) continue;
    // While nobody answers, no node is gone.
    unseen.insert(name);
    if (found) continue;
    failure = "node " + name + ": " + to_string(found.error());
    log_about(state.key, spdlog::level::warn, "{}", failure);
  }
  const std::lock_guard lock(mutex_);
  if (!failure.empty()) note_failure(state, std::move(failure));
  state.memory.unseen_nodes = std::move(unseen);
  return state.memory.unseen_nodes.empty();
}

Done Controller::look_at_agents(const api::TrainingJob& job) {
  if (!api::requires_gpu_direct(job.spec)) return {};
  const SteadyTime now = parts_.clock.steady();
  {
    const std::lock_guard lock(mutex_);
    if (agents_read_at_ && now - *agents_read_at_ < kAgentsInterval) return {};
    agents_read_at_ = now;  // one reader at a time is enough
  }
  const auto leases = read_agents(parts_.api, actuator_.settings().agent_namespace);
  const std::lock_guard lock(mutex_);
  if (!leases) {
    agents_read_at_.reset();
    return leases.error();
  }
  auto living = agents_.living(*leases, parts_.clock.wall(), parts_.clock.steady());
  if (living_agents_ != living) parts_.enqueue(kScheduleKey);
  living_agents_ = std::move(living);
  return {};
}

bool Controller::know_volumes(const JobPtr& job, const std::shared_ptr<JobState>& state,
                              bool queued) {
  if (!mounts_claims(job->job.spec)) return true;
  {
    const std::lock_guard lock(mutex_);
    // `prepare` reads them again
    const bool recent = parts_.clock.steady() - state->volumes_read_at < kVolumesInterval;
    if (state->volumes_generation == job->job.metadata.generation &&
        (recent || !state->memory.volumes_open))
      return true;
  }
  Done done = look_at_volumes(job, state);
  if (!done.refusal && !done.error) return true;
  // A running gang is not held back: its replacement looks for a node with what is known, and
  // gangTimeout bounds the try.
  if (!queued) {
    log_about(state->key, spdlog::level::warn, "volumes: {}",
              done.refusal ? done.refusal->message : to_string(*done.error));
    return true;
  }
  put_off(*state, std::move(done));
  return false;
}

void Controller::put_off(JobState& state, Done done) {
  if (done.error) log_about(state.key, spdlog::level::warn, "{}", to_string(*done.error));
  const std::lock_guard lock(mutex_);
  note_failure(state, done);
  state.memory.refusal = std::move(done.refusal);
  // The dropped placement leaves room that no event announces.
  if (std::exchange(state.memory.admission, std::nullopt)) parts_.enqueue(kScheduleKey);
  state.back_off(parts_.clock.wall());
}

std::optional<plan::Waiting> Controller::priority_of(const observe::JobView& job, std::string& name,
                                                     int& value) const {
  name = job.job.spec.scheduling.priority_class_name;
  const bool chosen = !name.empty();
  if (!chosen) name = actuator_.settings().default_priority_class;
  value = 0;
  auto priority = name.empty() ? nullptr : parts_.stores.priorities.get(name);
  if (!priority && !chosen) {
    name.clear();
    // The API server gives pods without a class the cluster's default one.
    for (const auto& known : parts_.stores.priorities.list()) {
      if (known->global_default) priority = known;
    }
    if (!priority) return std::nullopt;
  }
  if (!priority) {
    return plan::Waiting{"PriorityClassNotFound",
                         "PriorityClass " + name +
                             " does not exist; create it with preemptionPolicy: Never, or change "
                             "spec.scheduling.priorityClassName"};
  }
  if (priority->preempts && api::backend_of(job.job.spec) == api::Backend::kNative) {
    return plan::Waiting{"PriorityClassPreempts",
                         "PriorityClass " + priority->meta.name +
                             " lets the scheduler preempt single pods of other gangs; use one with "
                             "preemptionPolicy: Never "
                             "(Paceline preempts whole gangs itself)"};
  }
  value = priority->value;
  return std::nullopt;
}

std::optional<std::chrono::nanoseconds> Controller::schedule() {
  const std::lock_guard one_pass(schedule_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (queued_.empty() && wants_node_.empty() && wants_growth_.empty())
      return std::nullopt;  // as for most pods that end
  }
  const SteadyTime began = parts_.clock.steady();
  const Snapshot snapshot(parts_.stores);
  std::unique_lock lock(mutex_);
  ++counters_.scheduler_passes;
  SchedulerPass pass(*this, snapshot);
  // Pods of a deleted job take room until they end, also those that the cache has not seen yet.
  if (snapshot.pods_version < pass.orphans_version()) return kPassWait;
  for (const std::string& key : pass.run(lock)) parts_.enqueue(key);
  counters_.pass_times.add(parts_.clock.steady() - began);
  return until_next_way();  // no event tells it
}

}  // namespace paceline::apply
