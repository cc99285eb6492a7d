// SPDX-License-Identifier: Apache-2.0
// The nodes that a role may use: node selector, required node affinity, tolerations. Read once from
// a pod template, then checked for every node.
//
// Values; pure. A constraint that is not understood admits no node, so that a pod is never pinned
// to a node that the scheduler would refuse.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/observe/views.hpp"

namespace paceline::plan {

struct Requirement {
  std::string key;
  std::string op;  // In, NotIn, Exists, DoesNotExist, Gt, Lt
  std::vector<std::string> values;
  bool field = false;  // from matchFields: metadata.name
  bool operator==(const Requirement&) const = default;
};

/// Alternatives: a node must meet all requirements of one of them. An empty list demands nothing.
using NodeTerms = std::vector<std::vector<Requirement>>;

struct Toleration {
  std::string key;  // empty with Exists: everything
  std::string op;
  std::string value;
  std::string effect;  // empty: all effects
  bool operator==(const Toleration&) const = default;
};

struct Constraints {
  std::vector<std::pair<std::string, std::string>> selector;
  NodeTerms terms;
  std::vector<NodeTerms> volumes;  // for each bound volume that only some nodes reach
  std::vector<Toleration> tolerations;
  bool gpu_direct = false;            // only nodes whose agent reports working GPUDirect RDMA
  std::vector<std::string> excluded;  // nodes where the job failed
  bool operator==(const Constraints&) const = default;
};

/// From the `spec` of a pod template.
Constraints read_constraints(const nlohmann::json& pod_spec);

/// From a NodeSelector: `nodeSelectorTerms`.
NodeTerms read_terms(const nlohmann::json& node_selector);

/// The part of a pod's `spec` that has these constraints: nodeSelector, affinity and tolerations.
/// What only the planner knows, GPUDirect RDMA, is left out.
nlohmann::json write_constraints(const Constraints& constraints);

/// The taint refuses new pods that have these constraints.
bool keeps_off(const observe::Taint& taint, const Constraints& constraints);

/// Why the node cannot take such a pod; empty if it can. One of "cordoned", "not ready", "taint
/// KEY", "node selector", "node affinity", "out of reach of a volume", "where this job failed".
std::string refusal(const Constraints& constraints, const observe::NodeView& node,
                    const observe::FabricView* fabric = nullptr);

}  // namespace paceline::plan
