// SPDX-License-Identifier: Apache-2.0
// The Workload (kueue.x-k8s.io/v1beta2) by which Kueue decides on a job's quota. It has one pod set
// for each role. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/schedulers/kueue.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::render {

/// The priority that Kueue gives the job.
struct WorkloadPriority {
  api::PriorityClassRef ref;
  int value = 0;
};

std::string workload_name(const api::TrainingJob& job);

/// The job's own level bounds the role, and its template does not ask Kueue for a topology itself.
bool follows_level(const api::Spec& spec, const api::Role& role);

/// `pod_priority`: the PriorityClass of the pods; empty: none. `level`: for the roles that follow
/// it.
nlohmann::json render_workload(const api::TrainingJob& job, const WorkloadPriority& priority,
                               const std::string& pod_priority, const api::LevelAsk& level);

}  // namespace paceline::render
