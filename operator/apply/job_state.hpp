// SPDX-License-Identifier: Apache-2.0
// What the controller keeps in memory for one life (UID) of a job. Guarded by the controller's
// mutex.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/apply/volumes.hpp"
#include "operator/apply/warnings/warned_nodes.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

/// How long to wait between two reads of a job's summary: until its first step, and after it.
inline std::chrono::seconds poll_interval(const api::JobStatus& status) {
  const bool stepped =
      status.training.is_object() && status.training.value("step", std::int64_t{0}) > 0;
  return stepped ? std::chrono::seconds(15) : std::chrono::seconds(2);
}

using JobPtr = std::shared_ptr<const observe::JobView>;

/// Whether this operator creates the pods that a placement on record lacks. Nobody does for a job
/// that is deleted, and another manager's job may show the nodes of another cluster.
inline bool is_tended(const observe::JobView& job) {
  return !job.of_other_manager() && !job.job.metadata.deleting;
}

/// What the last plan decided, for people.
struct Decision {
  WallTime at{};
  std::string phase;
  std::string reason;
  std::string message;
  std::vector<std::string> actions;
};

/// The last call that the API server refused or did not answer, for people.
struct Failure {
  WallTime at{};
  std::string message;
};

struct JobState {
  std::string uid;
  std::string key;
  plan::Memory memory;
  // as the last write or read returned it; used until the cache has caught up
  JobPtr latest;
  // as people were last told of it, and when of each reason why it waits; only its worker uses them
  JobPtr told;
  std::map<std::string, SteadyTime> told_reasons;
  std::uint64_t pods_version = 0;  // of the pods that were written: wait until the cache has them
  std::string checked_spec;        // JobView::fingerprint that the dry run holds for
  std::string checked_priority;    // and its priority class
  bool asked_for_needs = false;    // a dry run was tried
  bool needs_missed = false;       // the scheduler's last pass could not do without it
  std::vector<plan::Admitted> admitted;  // by role, as the dry run returned; empty: not yet known
  std::string admitted_spec;             // JobView::fingerprint that it is of
  std::optional<Surroundings> surroundings;
  SteadyTime surrounded_at{};               // when they were last known to exist
  std::optional<SteadyTime> group_seen_at;  // when its PodGroup was last asked for while it waits
  SteadyTime surround_tried_at{};           // when they were last asked for while the gang gathers
  int surround_checks = 0;                  // how often they were looked at since the gang gathers
  std::optional<VolumeTerms> volumes;       // as last read
  std::int64_t volumes_generation = -1;
  SteadyTime volumes_read_at{};
  std::vector<plan::Need> needs;
  std::string needs_spec;
  std::optional<SteadyTime>
      polled_at;  // the last read of its summary that was answered or asked for
  std::optional<SteadyTime> written_at;  // the last write of its status
  bool write_unknown = false;            // whether that write was applied; only its worker uses it
  std::optional<SteadyTime> new_since;  // it waits for the scheduler's first word, without a status
  std::optional<SteadyTime> quota_full_since;  // it has a place, and the quota's status no room
  std::optional<SteadyTime> looked_at;         // a pass was asked for because its plan looks again
  std::optional<SteadyTime> request_read_at;
  WarnedNodes warned_nodes;  // only its worker uses it
  std::string phase;         // as counted in jobs_by_phase
  std::optional<Decision> decision;
  std::optional<Failure> failure;

  /// How long the Services and the Secret count as there after they were seen: twice as long each
  /// time, since a thousand gangs may gather for an hour.
  std::chrono::minutes surroundings_hold() const {
    return std::chrono::minutes(2 << std::min(surround_checks, 3));
  }

  /// How long to wait after one more refusal: twice as long each time, at most a minute.
  std::chrono::seconds back_off(WallTime now) {
    const auto pause =
        std::min(std::chrono::seconds(1 << std::min(memory.retries++, 6)), plan::kLongestBackOff);
    memory.retry_at = now + pause;
    return pause;
  }
};

}  // namespace paceline::apply
