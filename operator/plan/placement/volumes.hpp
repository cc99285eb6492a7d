// SPDX-License-Identifier: Apache-2.0
// The PersistentVolumeClaims of a gang. A bound volume limits the nodes to those that reach it. A
// claim that binds by itself (Immediate) must be bound before its gang is placed, since nothing
// else says which nodes its volume will allow. The others are in unbound.hpp. Pure: the caller
// passes the objects as the API server returned them.
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
  std::string name;  // empty: each pod gets a claim of its own (volumes[].ephemeral)
  nlohmann::json own = {};  // without a name: that claim, which does not exist yet
};

/// The claims that a role's pods mount and get, in the order of its volumes.
std::vector<ClaimUse> claims_of(const api::Spec& spec, std::size_t role);

/// The StorageClass that decides when an unbound claim binds; empty if the claim is bound or names
/// no class.
std::string class_that_binds(const nlohmann::json& claim);

/// Why no gang can be placed with this claim; nullopt if the claim is bound, or waits for a pod.
/// `claim` and `storage_class` are null if they do not exist.
std::optional<Waiting> claim_refusal(const ClaimUse& use, const std::string& ns,
                                     const nlohmann::json& claim,
                                     const nlohmann::json& storage_class);

/// How many may use a volume at the same time.
enum class Sharing { kAny, kOneNode, kOnePod };

/// The driver of a CSI volume; empty for others.
std::string driver_of(const nlohmann::json& volume);

/// What Kubernetes enforces of the access modes of a bound claim. ReadWriteOnce limits volumes that
/// are attached to a node, and no others: a file system of the network works on many nodes all the
/// same. `driver` is the CSIDriver of a CSI volume, null if it does not exist or is not known.
Sharing sharing_of(const nlohmann::json& claim, const nlohmann::json& volume,
                   const nlohmann::json& driver);

/// Why `pods` pods cannot share the claim. `apart` says why they come to several nodes; empty if
/// one node may hold them all.
std::optional<Waiting> sharing_refusal(const ClaimUse& use, Sharing sharing, int pods,
                                       const std::string& apart);

}  // namespace paceline::plan
