// SPDX-License-Identifier: Apache-2.0
// The PodGroup by which another scheduler binds a gang whole, and what makes the gang's pods its
// members. Pure. Fields: Volcano's volcano.sh/apis v1.14.0, Coscheduling's scheduler-plugins
// v0.35.4-devel, Kubernetes' k8s.io/api v0.37.2, and KAI 0.17.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.hpp"
#include "operator/render/quantity.hpp"

namespace paceline::render {

struct GangScheduler {
  api::Backend backend;
  std::string_view name;   // schedulerName of pods whose template names none
  std::string_view group;  // of the API that has its PodGroups
  std::string_view version;
  std::string_view remedy;  // what has the API server serve its PodGroups

  /// For kubectl: a cluster may have several APIs with PodGroups.
  std::string resource() const { return "podgroups." + std::string(group); }
};

std::span<const GangScheduler> gang_schedulers();

/// Null: Paceline chooses the nodes.
const GangScheduler* gang_scheduler(api::Backend backend);

/// `incarnation`: of the placement's first pods. Each placement has a group of its own, so that no
/// late delete meets the next one.
std::string pod_group_name(const api::TrainingJob& job, int incarnation);

struct PodGroupInputs {
  Amounts resources;           // that all pods request together
  std::string queue;           // empty: the scheduler's default
  std::string priority_class;  // empty: none
};

nlohmann::json render_pod_group(const api::TrainingJob& job, const std::string& name,
                                const GangScheduler& scheduler, const PodGroupInputs& inputs);

/// Makes the pod, as render_pod returns it, a member of the group. It avoids these nodes.
void join_pod_group(nlohmann::json& pod, const std::string& group, const GangScheduler& scheduler,
                    const std::vector<std::string>& avoid);

}  // namespace paceline::render
