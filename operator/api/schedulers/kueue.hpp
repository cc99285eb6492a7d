// SPDX-License-Identifier: Apache-2.0
// What an admission of Kueue means for the pods of one role. Values.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline::api {

inline constexpr const char* kKueueQueueLabel = "kueue.x-k8s.io/queue-name";
inline constexpr const char* kKueuePriorityLabel = "kueue.x-k8s.io/priority-class";

/// Annotation of a job's Workload: api::sized_fingerprint of the spec that it was made for.
inline constexpr const char* kSpecAnnotation = "paceline.dev/spec";

/// The class that a Workload has its priority from.
struct PriorityClassRef {
  std::string name;       // empty: no class
  bool of_kueue = false;  // a WorkloadPriorityClass, else a PriorityClass
  bool operator==(const PriorityClassRef&) const = default;
};

/// Annotations of a role's template by which its author asks Kueue for a topology.
inline constexpr std::array<const char*, 3> kTopologyAnnotations{
    "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology"};

/// The level of the network that a Workload asks Kueue for because of the job's spec.topology.
struct LevelAsk {
  std::string label;      // of the nodes: names the level in a Topology; empty: nothing is asked
  bool required = false;  // else preferred
  bool operator==(const LevelAsk&) const = default;
};

using NodeLabels = std::vector<std::pair<std::string, std::string>>;

/// So many pods of the role go to nodes with these labels.
struct PodShare {
  NodeLabels labels;
  int pods = 0;
  bool operator==(const PodShare&) const = default;
};

struct PodGrant {
  NodeLabels node_selector;                              // of flavors and admission checks
  nlohmann::json tolerations = nlohmann::json::array();  // of flavors and admission checks
  nlohmann::json labels = nlohmann::json::object();      // of admission checks
  nlohmann::json annotations = nlohmann::json::object();
  std::vector<PodShare> shares;  // the topology assignment; empty: any node that fits
  std::optional<int> pods;       // of an elastic role, so many have quota; nullopt: all
  bool operator==(const PodGrant&) const = default;
};

}  // namespace paceline::api
