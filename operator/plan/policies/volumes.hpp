// SPDX-License-Identifier: Apache-2.0
// PersistentVolumeClaims of a gang. Pods are pinned before they exist, so a volume must be bound
// before its gang is placed: one that binds only when a pod is scheduled (WaitForFirstConsumer)
// would choose nodes that the planner does not know, pod by pod. Such claims are refused by name;
// bound volumes bring the nodes that reach them. Pure: the objects are handed in as the API server
// returned them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.hpp"
#include "operator/plan/constraints.hpp"
#include "operator/plan/scheduler.hpp"

namespace paceline::plan {

struct ClaimUse {
  std::string path;  // spec.roles[0].template.spec.volumes[1].persistentVolumeClaim.claimName
  std::string name;
};

/// The claims that a role's pods mount, in the order of its volumes.
std::vector<ClaimUse> claims_of(const api::Spec& spec, std::size_t role);

/// The StorageClass that decides when an unbound claim binds; empty when the claim is bound or
/// names none.
std::string class_that_binds(const nlohmann::json& claim);

/// Why no gang can be placed on this claim; nothing when it is bound. `claim` null: there is none.
/// `storage_class` null: there is none of that name.
std::optional<Waiting> claim_refusal(const ClaimUse& use, const std::string& ns,
                                     const nlohmann::json& claim,
                                     const nlohmann::json& storage_class);

}  // namespace paceline::plan
