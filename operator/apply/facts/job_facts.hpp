// SPDX-License-Identifier: Apache-2.0
// JobFacts: all that the Controller holds about one job, copied so that somebody may ask why the
// job does or does not run. A value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/apply/job_state.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

struct JobFacts {
  JobPtr job;  // as last read or written
  std::vector<std::shared_ptr<const observe::PodView>> pods;
  plan::Memory memory;
  std::optional<Decision> decision;  // nullopt: not planned yet by this process
  std::optional<Failure> failure;    // the last one
  plan::KueueSeen kueue;
  bool queued = false;  // the scheduler is asked for a placement
  // From the last pass of the scheduler. A later job may be placed first if it delays no other.
  std::optional<WallTime> passed_at;
  bool in_pass = false;             // the pass considered the job
  std::vector<std::string> before;  // keys of waiting jobs that it considered earlier, in order
  std::size_t in_queue = 0;         // all that it considered and that still wait
};

/// What a plan does, in words; empty if it does nothing.
std::vector<std::string> actions_of(const plan::Plan& plan);

}  // namespace paceline::apply
