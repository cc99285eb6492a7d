// SPDX-License-Identifier: Apache-2.0
// JobShape: what a simulated TrainingJob looks like. Values.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/contract/roles.hpp"

namespace paceline::sim {

inline constexpr int kNodesOfLeaf = 2;
/// The label that names the leaf of a node: one that every cluster has, and where Kueue runs one of
/// which only its Topology says what it names.
inline constexpr const char* kLeafLabel = "paceline.dev/leaf";
inline constexpr const char* kRackLabel = "example.com/rack";

struct RoleShape {
  contract::RoleKind kind = contract::RoleKind::kWorker;
  int replicas = 1;
  int processes = 0;           // of each replica; 0: as the framework says
  bool after_servers = false;  // starts when the parameter servers have started
};

struct JobShape {
  std::string name;
  int replicas = 1;
  int cpu = 1;  // of each pod
  int max_restarts = 0;
  std::string clean_pod_policy = "Running";
  std::string success_policy = "AllRanks";
  std::string ttl{};   // empty: none
  int wrong_type = 0;  // above 0: a field of the template has a wrong type
  std::string framework = "Custom";
  // in the order of node ranks; empty: one role of `replicas` workers
  std::vector<RoleShape> roles{};
  bool one_leaf = false;        // spec.topology.required is Leaf
  bool prefers_leaf = false;    // spec.topology.preferred is Leaf, for a minute
  bool may_grow = false;        // it asks for nodes by placeholders
  bool lacks_an_image = false;  // the image of the last role cannot be pulled
  std::string oom_action{};     // of a failure rule for containers out of memory; empty: no rule
  int spares = 0;               // of the replicas, so many stand by
  int fewest = 0;               // above 0: its workers are elastic, and not fewer than these
  int wanted = 0;               // of an elastic job
  int most = 0;
  std::string kueue_queue{};  // a LocalQueue of Kueue; empty: none
  std::string backend{};      // of spec.scheduling; empty: none is named
  bool host_network = false;  // its pods are in the network of their node
};

/// The image that no registry has.
inline constexpr const char* kMissingImage = "registry.example/mistyped:1";

nlohmann::json document_of(const JobShape& shape);

}  // namespace paceline::sim
