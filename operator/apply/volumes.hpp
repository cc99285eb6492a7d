// SPDX-License-Identifier: Apache-2.0
// Reads which nodes a job's volumes allow: its PersistentVolumeClaims, the StorageClasses of
// unbound claims, and the PersistentVolumes of bound ones. That is a few reads for each job that
// mounts claims and none for others; nothing is watched or cached.
//
// Failure: a refusal that names field, claim and remedy, or an Error to try again (see Done).
#pragma once

#include <expected>
#include <vector>

#include "common/kube/api/api.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/plan/placement/constraints.hpp"

namespace paceline::apply {

/// For each role and each volume that only some nodes reach: alternatives, one of which a node must
/// meet.
using VolumeTerms = std::vector<std::vector<plan::NodeTerms>>;

bool mounts_claims(const api::Spec& spec);
std::expected<VolumeTerms, Done> read_volumes(kube::Api& api, const api::TrainingJob& job);

}  // namespace paceline::apply
