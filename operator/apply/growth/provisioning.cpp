// SPDX-License-Identifier: Apache-2.0
// How the Controller asks for nodes for a job that waits: who would add them, and the placeholders
// or objects that its plan names.
#include "common/base/log.hpp"

#include <algorithm>

#include "common/base/duration.hpp"
#include "common/kube/api/object_version.hpp"
#include "operator/api/elastic.hpp"
#include "operator/api/fingerprint.hpp"
#include "operator/apply/controller.hpp"
#include "operator/apply/kueue/workload.hpp"
#include "operator/apply/results.hpp"
#include "operator/render/placeholder.hpp"

namespace paceline::apply {
namespace {

/// Autoscalers are installed and removed by people.
constexpr auto kAutoscalerInterval = std::chrono::minutes(5);
constexpr auto kRefusalPause = std::chrono::minutes(1);
constexpr auto kRequestInterval = std::chrono::seconds(15);
/// A controller that handles an object says so at once.
constexpr auto kAnswerTime = std::chrono::minutes(1);
/// How long objects that nobody answered are not used: twice as long each time. An autoscaler may
/// have been down, but in some clusters nobody ever answers.
constexpr auto kUnansweredPause = std::chrono::minutes(5);
constexpr int kMostDoublings = 4;

}  // namespace

api::Provision Controller::way_to_ask(const observe::JobView& job) const {
  using enum api::Provision;
  const auto served = [&](api::Provision kind) {
    if (kind == kProvisioningRequest) return !growers_.provisioning_requests.empty();
    return kind != kCapacityBuffer || !growers_.capacity_buffers.empty();
  };
  // Kueue asks by its own admission checks.
  if (!look_at_kueue(parts_.stores, job).queue.empty()) return kDisabled;
  api::Provision way = job.job.spec.scheduling.provision;
  if (way == kAuto) way = actuator_.settings().provision;
  if (way != kAuto) return served(way) ? way : kDisabled;
  // Nodes may be on their way for what the job asks by already.
  if (const auto known = states_.find(job.meta.uid); known != states_.end()) {
    const auto& request = known->second->memory.request;
    if (request && !request->answer.empty() && served(request->kind)) return request->kind;
  }
  const auto placeholders = observe::placeholder_index(job.meta.uid);
  if (growers_.pods && !parts_.stores.pods.by_index(placeholders).empty()) return kPlaceholders;
  for (const api::Provision kind : {kProvisioningRequest, kCapacityBuffer}) {
    const auto mark = unanswered_.find(kind);
    const bool passed = mark == unanswered_.end() || mark->second.until <= parts_.clock.steady();
    if (served(kind) && passed) return kind;
  }
  return growers_.pods ? kPlaceholders : kDisabled;
}

void Controller::note_unanswered(api::Provision kind) {
  const SteadyTime now = parts_.clock.steady();
  Unanswered& mark = unanswered_[kind];
  if (now < mark.until) return;  // another job has asked at the same time
  // Said once. An answer forgets it, so a later silence is said again.
  const bool is_news = mark.times++ == 0;
  if (actuator_.settings().provision != api::Provision::kAuto) {
    if (is_news)
      spdlog::warn("nobody answers {}s; jobs ask in no other way, since --provision names this one",
                   api::to_string(kind));
    return;
  }
  const auto pause = kUnansweredPause * (1 << std::min(mark.times - 1, kMostDoublings));
  mark.until = now + pause;
  if (is_news)
    spdlog::warn("nobody answers {}s; other ways are tried for {}, and longer each time",
                 api::to_string(kind), format_duration(pause));
  parts_.enqueue(kScheduleKey);
}

std::optional<std::chrono::nanoseconds> Controller::until_next_way() const {
  std::optional<std::chrono::nanoseconds> soonest;
  for (const auto& [kind, mark] : unanswered_) {
    const std::chrono::nanoseconds left = mark.until - parts_.clock.steady();
    if (left.count() > 0 && (!soonest || left < *soonest)) soonest = left;
  }
  return soonest;
}

void Controller::look_for_autoscaler() {
  const SteadyTime now = parts_.clock.steady();
  {
    const std::lock_guard lock(mutex_);
    if (growers_read_at_ && now - *growers_read_at_ < kAutoscalerInterval) return;
    growers_read_at_ = now;  // one reader at a time is enough
  }
  const auto found = find_growers(parts_.api);
  const std::lock_guard lock(mutex_);
  if (!found) {
    growers_read_at_.reset();
    spdlog::warn("looking for an autoscaler: {}", to_string(found.error()));
  } else if (std::exchange(growers_, *found) != *found) {
    parts_.enqueue(kScheduleKey);
  }
}

void Controller::recall_requests() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_recalled_, true)) return;
  }
  look_for_autoscaler();
  Growers growers;
  {
    const std::lock_guard lock(mutex_);
    growers = growers_;
    has_recalled_ = growers_read_at_.has_value();
  }
  auto requests = requests_.list(growers);
  const std::lock_guard lock(mutex_);
  if (!requests) {
    has_recalled_ = false;
    spdlog::warn("looking for requests for nodes: {}", to_string(requests.error()));
    return;
  }
  recalled_ = std::move(*requests);
  for (const auto& job : parts_.stores.jobs.list()) {
    if (recalled_.contains(job->meta.uid))
      parts_.enqueue(kube::key_of(job->meta.ns, job->meta.name));
  }
}

void Controller::read_request(const JobPtr& job, const std::shared_ptr<JobState>& state) {
  const SteadyTime now = parts_.clock.steady();
  plan::NodeRequest request;
  Growers growers;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = recalled_.find(state->uid); known != recalled_.end()) {
      state->memory.request = known->second;
      recalled_.erase(known);
    }
    if (!state->memory.request) return;
    if (state->request_read_at && now - *state->request_read_at < kRequestInterval) return;
    state->request_read_at = now;
    request = *state->memory.request;
    growers = growers_;
  }
  const auto answer = requests_.read(job->job, request, growers);
  const std::lock_guard lock(mutex_);
  if (answer) {
    state->memory.request = *answer;
    if (!answer->answer.empty()) {
      if (unanswered_.erase(answer->kind) > 0) parts_.enqueue(kScheduleKey);
    } else if (parts_.clock.wall() - answer->created > kAnswerTime &&
               job->job.spec.scheduling.provision == api::Provision::kAuto) {
      note_unanswered(answer->kind);
    }
  } else if (answer.error().code == Code::kNotFound) {
    state->memory.request.reset();
  } else {
    log_about(state->key, spdlog::level::warn, "{}", to_string(answer.error()));
  }
}

std::optional<Outcome> Controller::request_nodes(const JobPtr& job,
                                                 const std::shared_ptr<JobState>& state,
                                                 const plan::Plan& plan) {
  if (!plan.request_nodes && !plan.withdraw_request) return std::nullopt;
  std::vector<plan::Need> needs;
  plan::NodeRequest request;
  Growers growers;
  {
    const std::lock_guard lock(mutex_);
    request = {way_to_ask(*job), parts_.clock.wall(), "", false, plan.request_shape};
    needs = needs_now(*job, *state);
    if (plan.grow_by > 0) {
      needs = {needs[job->job.spec.elastic->role]};
      needs.front().count = plan.grow_by;
    }
    growers = growers_;
    if (plan.withdraw_request) request = *state->memory.request;
  }
  Status done;
  bool has_left = false;
  if (plan.withdraw_request) {
    done = requests_.withdraw(job->job, request.kind, growers);
  } else {
    std::vector<PodSet> sets;
    for (const plan::Need& need : needs)
      sets.push_back({need.role, need.count, actuator_.placeholder(job->job, 0, need)});
    done = requests_.create(job->job, request, growers, sets);
    // A part of the objects may exist, and would stay when the job no longer asks.
    if (!done) has_left = !requests_.withdraw(job->job, request.kind, growers);
  }
  const std::lock_guard lock(mutex_);
  plan::Memory& memory = state->memory;
  state->request_read_at.reset();
  if (done) {
    memory.no_placeholders.clear();
    if (plan.withdraw_request) {
      memory.request.reset();
    } else {
      memory.request = request;
    }
    return Outcome{false, std::chrono::milliseconds(0)};
  }
  if (has_left) {
    memory.request = request;
    memory.request->shape.clear();  // so it is withdrawn before it is made again
  }
  if (final_refusal(done.error()) && !plan.withdraw_request) {
    memory.no_placeholders = done.error().message;
    memory.ask_again = parts_.clock.wall() + kRefusalPause;
    return Outcome{false, std::chrono::milliseconds(0)};
  }
  log_about(state->key, spdlog::level::warn, "{}", to_string(done.error()));
  ++counters_.errors;
  return Outcome{true, std::nullopt};
}

std::optional<Outcome> Controller::hold_room(const JobPtr& job,
                                             const std::shared_ptr<JobState>& state,
                                             const plan::Plan& plan, Done& total) {
  if (plan.placeholders.empty()) return std::nullopt;
  std::vector<plan::Need> needs;
  {
    const std::lock_guard lock(mutex_);
    needs = needs_now(*job, *state);
  }
  const Done done = actuator_.hold(job->job, plan.placeholders, needs);
  total.pods_version = std::max(total.pods_version, done.pods_version);
  if (done.error) log_about(state->key, spdlog::level::warn, "{}", to_string(*done.error));
  const std::lock_guard lock(mutex_);
  counters_.placeholders_created += done.created;
  state->memory.no_placeholders = done.refusal ? done.refusal->message : "";
  if (done.refusal) {
    state->memory.ask_again = parts_.clock.wall() + kRefusalPause;
    return Outcome{false, std::chrono::milliseconds(0)};
  }
  if (!done.error) return std::nullopt;
  ++counters_.errors;
  return Outcome{true, std::nullopt};
}

nlohmann::json Actuator::placeholder(const api::TrainingJob& job, int rank,
                                     const plan::Need& need) const {
  return render::render_placeholder(
      job, rank,
      {need.each.amounts(), plan::write_constraints(need.constraints),
       job.spec.scheduling.pods_per_node, settings_.runtime_image, settings_.pull_policy,
       api::role_fingerprint(api::fingerprint(job.spec), job.spec, need.role)});
}

Done Actuator::hold(const api::TrainingJob& job, const std::vector<plan::HoldRoom>& rooms,
                    const std::vector<plan::Need>& needs) {
  Collector collector;
  std::vector<Executor::Task> tasks;
  for (const plan::HoldRoom& room : rooms) {
    tasks.emplace_back([&] {
      if (collector.refusal()) return;
      const auto made = make(kube::kPods, job, placeholder(job, room.node_rank, needs[room.role]));
      if (made) {
        collector.wrote(kube::version_of(*made), &Done::created);
      } else {
        collector.failed(made.error());
      }
    });
  }
  executor_.run(std::move(tasks));
  return collector.take();
}

}  // namespace paceline::apply
