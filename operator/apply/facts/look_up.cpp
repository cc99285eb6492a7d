// SPDX-License-Identifier: Apache-2.0
// What the Controller keeps for people who ask about a job, and its answer.
#include <utility>

#include "operator/apply/controller.hpp"
#include "operator/apply/facts/job_facts.hpp"
#include "operator/apply/kueue/workload.hpp"

namespace paceline::apply {

std::optional<JobFacts> Controller::facts(const std::string& key) const {
  const auto cached = parts_.stores.jobs.get(key);
  if (!cached) return std::nullopt;
  JobFacts facts;
  facts.job = cached;
  facts.pods = parts_.stores.pods.by_index(observe::gang_index(cached->meta.uid));
  if (cached->errors.empty()) facts.kueue = look_at_kueue(parts_.stores, *cached);
  const std::lock_guard lock(mutex_);
  const auto known = states_.find(cached->meta.uid);
  if (known == states_.end()) return facts;
  const JobState& state = *known->second;
  facts.job = newest(cached, state);
  facts.memory = state.memory;
  facts.decision = state.decision;
  facts.failure = state.failure;
  facts.queued = queued_.contains(state.uid);
  facts.passed_at = passed_at_;
  for (const std::string& uid : order_) {
    if (!queued_.contains(uid)) continue;
    ++facts.in_queue;
    facts.in_pass = facts.in_pass || uid == state.uid;
    const auto other = states_.find(uid);
    if (!facts.in_pass && other != states_.end()) facts.before.push_back(other->second->key);
  }
  return facts;
}

void Controller::note_failure(JobState& state, std::string message) const {
  state.failure = Failure{parts_.clock.wall(), std::move(message)};
}

void Controller::note_failure(JobState& state, const Done& done) const {
  if (done.error) {
    note_failure(state, to_string(*done.error));
  } else if (done.refusal) {
    note_failure(state, done.refusal->message);
  }
}

}  // namespace paceline::apply
