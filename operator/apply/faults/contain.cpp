// SPDX-License-Identifier: Apache-2.0
// What becomes of a job whose reconciliation threw: it is counted, logged and set aside, and all
// other jobs go on.
#include "common/base/log.hpp"

#include <string>

#include "operator/apply/controller.hpp"

namespace paceline::apply {

void Controller::contain(const std::string& key, const std::exception& error) {
  const std::lock_guard lock(mutex_);
  note_internal_error(key, error.what());
  const auto known = uid_of_key_.find(key);
  if (known == uid_of_key_.end()) return;
  JobState& state = *states_.at(known->second);
  note_failure(state, std::string("internal error: ") + error.what());
  set_aside(state);
}

void Controller::set_aside(JobState& state) {
  queued_.erase(state.uid);
  wants_node_.erase(state.uid);
  wants_growth_.erase(state.uid);
  // Otherwise no gang is placed before it is known what the job's missing pods need. The rendered
  // pods are the best guess.
  state.asked_for_needs = true;
  // Room that was found for it is free again, unless its placement may be on record.
  if (!state.write_unknown) state.memory.admission.reset();
  state.memory.growth.reset();
  parts_.enqueue(kScheduleKey);
}

void Controller::note_internal_error(const std::string& key, const std::string& what) {
  ++counters_.internal_errors;
  log_about(key, spdlog::level::err, "internal error: {}; other jobs go on", what);
}

}  // namespace paceline::apply
