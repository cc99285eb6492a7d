// SPDX-License-Identifier: Apache-2.0
// Claims without a volume when their gang is placed. Their StorageClass waits for a pod
// (WaitForFirstConsumer), or Kubernetes makes the claim for a pod (generic ephemeral volumes). The
// scheduler binds them on the node that the pod is pinned to, so that node must reach a volume.
// Pure: the caller passes the objects as the API server returned them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/plan/placement/constraints.hpp"
#include "operator/plan/placement/gangs.hpp"
#include "operator/plan/placement/volumes.hpp"

namespace paceline::plan {

/// Whether volumes of the class are made on demand; others are made by hand. `storage_class` is
/// null if it does not exist.
bool makes_volumes(const nlohmann::json& storage_class);

/// The nodes that the class makes volumes for (allowedTopologies).
NodeTerms allowed_nodes(const nlohmann::json& storage_class);

/// Whether kube-scheduler may bind the claim to this volume, on a node that reaches it.
bool may_take(const nlohmann::json& claim, const nlohmann::json& volume);

/// The nodes that reach at least one of the volumes.
NodeTerms any_of(const std::vector<NodeTerms>& volumes);

/// The volume that the class will make for the claim, as far as it is known; null if it makes none.
nlohmann::json expected_volume(const nlohmann::json& claim, const nlohmann::json& storage_class);

/// That no volume is there for a claim of this class, whose volumes are made by hand. `found`: the
/// class exists.
Waiting no_free_volume(const ClaimUse& use, const std::string& storage_class, bool found);

}  // namespace paceline::plan
