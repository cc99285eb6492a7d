// SPDX-License-Identifier: Apache-2.0
// What the operator keeps of Kueue's objects (kueue.x-k8s.io/v1beta2). Projections are pure and
// lenient, as those of views.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/kube/api/object_meta.hpp"
#include "operator/api/schedulers/kueue.hpp"

namespace paceline::observe {

/// What was admitted for one role.
struct RoleAdmission {
  std::string role;
  std::vector<std::string> flavors;
  api::PodGrant grant;  // of admission checks and of the topology; without the flavors
  int pods = 0;         // so many of the role have quota
  bool operator==(const RoleAdmission&) const = default;
};

struct WorkloadView {
  kube::ObjectMeta meta;
  std::string job_uid;  // from the owner reference; empty: not of a TrainingJob
  std::string job_name;
  std::string queue;
  std::string spec;  // api::sized_fingerprint of the job that it was made for
  api::PriorityClassRef priority;
  api::LevelAsk level;
  bool deleting = false;
  bool quota_reserved = false;
  bool admitted = false;
  bool evicted = false;
  bool finished = false;
  bool pods_ready = false;
  std::string eviction;  // why it was evicted: Preempted, PodsReadyTimeout, Deactivated, …
  std::string message;   // of the eviction, else why it is not admitted
  std::vector<RoleAdmission> roles;
  bool gave_back = false;  // Kueue would admit it without pods that its job no longer has

  /// Its quota may be used.
  bool grants() const { return admitted && !evicted && !finished && !deleting; }
};

struct LocalQueueView {
  kube::ObjectMeta meta;
  std::vector<std::string> flavors;  // of its ClusterQueue; empty: Kueue has not said them yet
};

struct FlavorView {
  kube::ObjectMeta meta;
  api::NodeLabels node_labels;
  nlohmann::json tolerations = nlohmann::json::array();
  std::string topology;  // the name of its Topology; empty: it has none
};

struct TopologyView {
  kube::ObjectMeta meta;
  std::vector<std::string> levels;  // the node label of each level, from the widest
};

Result<WorkloadView> project_workload(std::string_view json);
Result<LocalQueueView> project_local_queue(std::string_view json);
Result<FlavorView> project_flavor(std::string_view json);
Result<TopologyView> project_topology(std::string_view json);

}  // namespace paceline::observe
