// SPDX-License-Identifier: Apache-2.0
// What the controller keeps of one life (UID) of a job. Guarded by the controller's mutex.
#pragma once

#include <algorithm>

#include "operator/apply/controller.hpp"
#include "operator/apply/volumes.hpp"

namespace paceline::apply {

struct Controller::JobState {
  std::string uid;
  std::string key;
  plan::Memory memory;
  // as our last write or read left it; used until the cache has caught up
  JobPtr latest;
  std::uint64_t pods_version = 0;        // of pods that we wrote: wait for the cache
  std::int64_t checked_generation = -1;  // dry run
  std::string checked_priority;
  std::optional<Surroundings> surroundings;
  std::optional<VolumeTerms> volumes;  // as last read
  std::int64_t volumes_generation = -1;
  std::vector<plan::Need> needs;
  std::int64_t needs_generation = -1;
  SteadyTime last_poll{};
  std::string phase;  // as counted in jobs_by_phase

  /// How long to leave the job alone after one more refusal: twice as long each time, a minute at
  /// most.
  std::chrono::seconds back_off(WallTime now) {
    const auto pause =
        std::min(std::chrono::seconds(1 << std::min(memory.retries++, 6)), plan::kLongestBackOff);
    memory.retry_at = now + pause;
    return pause;
  }
};

}  // namespace paceline::apply
