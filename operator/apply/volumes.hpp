// SPDX-License-Identifier: Apache-2.0
// Reads which nodes a job's volumes allow: its PersistentVolumeClaims, the StorageClasses of
// unbound claims, the PersistentVolumes of bound ones, and the CSIDrivers of volumes that one node
// may use at a time. For claims of a class without a provisioner all PersistentVolumes are listed.
// That is a few reads for each job that mounts claims and none for others; nothing is watched or
// cached.
//
// Failure: a refusal that names field, claim and remedy, or an Error to try again (see Done).
#pragma once

#include <expected>
#include <memory>
#include <optional>
#include <vector>

#include "common/kube/api/api.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/plan/placement/constraints.hpp"
#include "operator/plan/placement/volumes.hpp"

namespace paceline::apply {

/// For each role and each volume that only some nodes reach: alternatives, one of which a node must
/// meet.
using VolumeTerms = std::vector<std::vector<plan::NodeTerms>>;

/// A claim of which not every set of pods can make use.
struct LimitedClaim {
  plan::ClaimUse use;
  plan::Sharing sharing;
  std::vector<std::size_t> roles;  // that mount it
};

struct Volumes {
  VolumeTerms terms;
  std::vector<LimitedClaim> limited;
  bool open = false;  // a claim has no volume yet: which nodes it allows may change
};

bool mounts_claims(const api::Spec& spec);
std::expected<Volumes, Done> read_volumes(kube::Api& api, const api::TrainingJob& job);

/// Why the pods of the job cannot use the claim together; nullopt if they may be able to. `each` is
/// what a pod of each role needs; an empty list of nodes says nothing.
std::optional<plan::Waiting> sharing_refusal(
    const LimitedClaim& claim, const api::Spec& spec, const std::vector<observe::Resources>& each,
    const std::vector<std::shared_ptr<const observe::NodeView>>& nodes);

}  // namespace paceline::apply
