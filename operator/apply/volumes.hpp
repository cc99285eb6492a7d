// SPDX-License-Identifier: Apache-2.0
// Reads what a job's volumes demand of nodes: its PersistentVolumeClaims, the StorageClasses of
// those that are not bound, and the PersistentVolumes of those that are. A few reads for each job
// that mounts claims, none for others; nothing is watched or cached.
//
// Failure: a refusal that names field, claim and remedy, or an Error to try again (see Done).
#pragma once

#include <expected>
#include <vector>

#include "common/kube/api/api.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/plan/constraints.hpp"

namespace paceline::apply {

/// Per role, per volume that is bound to certain nodes: the alternatives, one of which a node must
/// meet.
using VolumeTerms = std::vector<std::vector<plan::NodeTerms>>;

bool mounts_claims(const api::Spec& spec);
std::expected<VolumeTerms, Done> read_volumes(kube::Api& api, const api::TrainingJob& job);

}  // namespace paceline::apply
