// SPDX-License-Identifier: Apache-2.0
// Objects that ask the cluster's autoscaler for nodes: a ProvisioningRequest, or a CapacityBuffer
// for each role, with PodTemplates. The job owns them, so they go with it. Objects of other owners
// are neither taken for the job's nor deleted, whatever their names.
//
// Blocks on the API. Every call may be repeated. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/kube/api/api.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

/// What adds nodes in this cluster.
struct Growers {
  std::string provisioning_requests;  // the served version; empty: none
  std::string capacity_buffers;
  bool pods = false;  // Karpenter or Cluster Autoscaler adds nodes for pods
  bool operator==(const Growers&) const = default;
};

/// True for pods if Karpenter's API is served, or if Cluster Autoscaler keeps its status ConfigMap.
Result<Growers> find_growers(kube::Api& api);

/// One role: how many pods, and a placeholder that has their shape.
struct PodSet {
  std::string role;
  int count = 0;
  nlohmann::json placeholder;
};

class NodeRequests {
 public:
  explicit NodeRequests(kube::Api& api) : api_(api) {}

  /// Creates the objects that do not exist yet. kInvalid if one of another owner has its name;
  /// kConflict if one of the job's has it that was made for another shape: withdraw it first.
  Status create(const api::TrainingJob& job, const plan::NodeRequest& request,
                const Growers& growers, const std::vector<PodSet>& sets);
  /// What the autoscaler says now. The text of several objects is that of the first that is not
  /// ready.
  Result<plan::NodeRequest> read(const api::TrainingJob& job, const plan::NodeRequest& request,
                                 const Growers& growers);
  Status withdraw(const api::TrainingJob& job, api::Provision kind, const Growers& growers);
  /// All that exist, by UID of their job.
  Result<std::map<std::string, plan::NodeRequest>> list(const Growers& growers);

 private:
  kube::Api& api_;
};

}  // namespace paceline::apply
