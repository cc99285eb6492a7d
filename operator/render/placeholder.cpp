// SPDX-License-Identifier: Apache-2.0
#include "operator/render/placeholder.hpp"

#include <limits>

#include "common/contract/labels.hpp"
#include "operator/render/owner.hpp"

namespace paceline::render {
namespace {

using nlohmann::json;

/// Requests equal limits: extended resources demand it, and a LimitRange then adds no limit of its
/// own.
json resources_of(const PlaceholderInputs& inputs) {
  const json amounts = quantities(inputs.resources);
  return {{"requests", amounts}, {"limits", amounts}};
}

/// At most so many placeholders of the job on a node. The skew is counted from the node with the
/// fewest, or from 0 if there are fewer nodes than minDomains.
json cap_of(const api::TrainingJob& job, int per_node) {
  const std::string label(contract::kLabelPlaceholder);
  return {{"maxSkew", per_node},
          {"minDomains", std::numeric_limits<std::int32_t>::max()},
          {"topologyKey", "kubernetes.io/hostname"},
          {"whenUnsatisfiable", "DoNotSchedule"},
          {"labelSelector", {{"matchLabels", {{label, job.metadata.name}}}}}};
}

}  // namespace

std::string placeholder_name(const api::TrainingJob& job, int node_rank) {
  return job.metadata.name + "-placeholder-" + std::to_string(node_rank);
}

json render_placeholder(const api::TrainingJob& job, int node_rank,
                        const PlaceholderInputs& inputs) {
  const std::string label(contract::kLabelPlaceholder);
  const json labels = {{label, job.metadata.name},
                       {std::string(contract::kLabelPlaceholderRank), std::to_string(node_rank)},
                       {std::string(contract::kLabelPlaceholderShape), inputs.shape}};
  json spec = inputs.constraints;
  if (inputs.per_node) {
    spec["topologySpreadConstraints"] = json::array({cap_of(job, *inputs.per_node)});
    // Nodes where a running elastic job has pods take no more of them, or it would have grown.
    const json own = {{"matchLabels", {{std::string(contract::kLabelJob), job.metadata.name}}}};
    spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json::array({{{"labelSelector", own}, {"topologyKey", "kubernetes.io/hostname"}}});
  }
  // What Pod Security `restricted` asks for. The image names a user that is not root.
  const json security = {{"allowPrivilegeEscalation", false},
                         {"readOnlyRootFilesystem", true},
                         {"capabilities", {{"drop", {"ALL"}}}},
                         {"seccompProfile", {{"type", "RuntimeDefault"}}},
                         {"runAsNonRoot", true}};
  const json container = {{"name", "placeholder"},
                          {"image", inputs.image},
                          {"imagePullPolicy", inputs.pull_policy},
                          {"command", {"/opt/paceline-image/bin/paceline-launcher", "hold"}},
                          {"resources", resources_of(inputs)},
                          {"securityContext", security}};
  spec["containers"] = json::array({container});
  spec["restartPolicy"] = "Always";
  spec["priorityClassName"] = kPlaceholderPriority;
  spec["automountServiceAccountToken"] = false;
  spec["enableServiceLinks"] = false;
  // Deleted with no grace at all, its room would count as free before the kubelet has stopped it.
  spec["terminationGracePeriodSeconds"] = 1;
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", placeholder_name(job, node_rank)},
            {"namespace", job.metadata.name_space},
            {"labels", labels},
            {"ownerReferences", json::array({owner_reference(job)})}}},
          {"spec", std::move(spec)}};
}

}  // namespace paceline::render
