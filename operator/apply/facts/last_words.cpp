// SPDX-License-Identifier: Apache-2.0
// The checkpoint that the launcher of a pod tells of as it ends. The pod may be gone before its job
// is looked at again, and a job that was suspended or preempted has lost its placement by then. So
// it is read when the watch shows it.
#include "operator/apply/controller.hpp"

namespace paceline::apply {

void Controller::take_last_words(const observe::PodView& pod) {
  const auto report = status::read_report(pod.gang->termination_message);
  if (!report || report->checkpoint.is_null()) return;
  const std::lock_guard lock(mutex_);
  const auto known = states_.find(pod.gang->job_uid);
  if (known == states_.end()) return;
  nlohmann::json& checkpoint = known->second->memory.checkpoint;
  checkpoint = status::later_checkpoint(checkpoint, report->checkpoint);
}

}  // namespace paceline::apply
