// SPDX-License-Identifier: Apache-2.0
// A pod that holds a node's room for one replica of a job that waits. It does nothing, and any
// other pod may take its room. The cluster's autoscaler adds a node for it where there is none.
// Pure.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.hpp"
#include "operator/render/quantity.hpp"

namespace paceline::render {

/// Exists in every cluster with the chart. Cluster Autoscaler ignores pods below -10, so its value
/// is -10.
inline constexpr const char* kPlaceholderPriority = "paceline-placeholder";

struct PlaceholderInputs {
  Amounts resources;            // what the replica's pod needs in all
  nlohmann::json constraints;   // nodeSelector, affinity and tolerations of the pod's spec
  std::optional<int> per_node;  // most placeholders of the job on a node
  std::string image;            // of the runtime, which the replica needs on its node, too
  std::string pull_policy = "IfNotPresent";
  std::string shape;  // fingerprint of the job's spec
};

std::string placeholder_name(const api::TrainingJob& job, int node_rank);

nlohmann::json render_placeholder(const api::TrainingJob& job, int node_rank,
                                  const PlaceholderInputs& inputs);

}  // namespace paceline::render
