// SPDX-License-Identifier: Apache-2.0
// The PersistentVolumeClaims of a gang. Pods are pinned before they exist, so a volume must be
// bound before its gang is placed. A claim that binds only when a pod is scheduled
// (WaitForFirstConsumer) would choose nodes that the planner does not know; it is refused by name.
// A bound volume limits the nodes to those that reach it. Pure: the caller passes the objects as
// the API server returned them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.hpp"
#include "operator/plan/placement/gangs.hpp"

namespace paceline::plan {

struct ClaimUse {
  std::string path;  // spec.roles[0].template.spec.volumes[1].persistentVolumeClaim.claimName
  std::string name;
};

/// The claims that a role's pods mount, in the order of its volumes.
std::vector<ClaimUse> claims_of(const api::Spec& spec, std::size_t role);

/// The StorageClass that decides when an unbound claim binds; empty if the claim is bound or names
/// no class.
std::string class_that_binds(const nlohmann::json& claim);

/// Why no gang can be placed with this claim; nullopt if the claim is bound. `claim` and
/// `storage_class` are null if they do not exist.
std::optional<Waiting> claim_refusal(const ClaimUse& use, const std::string& ns,
                                     const nlohmann::json& claim,
                                     const nlohmann::json& storage_class);

}  // namespace paceline::plan
