// SPDX-License-Identifier: Apache-2.0
// spec.elastic: one role whose number of replicas may change while the job runs. Everything else of
// the operator reads the number of replicas from the role. So this sets it there: to what the spec
// wants while the job waits, and to the size on record while it is placed. Pure.
#pragma once

#include <string>

#include "operator/api/field_error.hpp"
#include "operator/api/status.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

/// The role that `spec.elastic` names, whatever else is wrong with it; empty: none.
std::string elastic_role(const nlohmann::json* value);

/// Reads spec.elastic after the roles were read.
void read_elastic(const nlohmann::json& value, Spec& spec, FieldErrors& errors);

/// Gives the elastic role the replicas of the placement on record. Leaves other jobs as they are.
void size_as_placed(Spec& spec, const JobStatus& status);

/// How many replicas the elastic role has in a gang of `pods` pods; nullopt: spec.elastic does not
/// allow such a gang. Ask only for elastic jobs.
std::optional<int> elastic_size(const Spec& spec, std::size_t pods);

/// The node rank of the first replica that a placed gang lacks, in the gang that the spec wants.
/// Ask only for elastic jobs, whose role has the replicas on record.
int rank_to_add(const Spec& spec);

/// The fingerprint of a spec, with the sizes that it asks Kueue for.
std::string sized_fingerprint(const std::string& fingerprint, const Spec& spec);

/// What a placeholder for a pod of `role` was made for. In another size of an elastic job its rank
/// may be that of another role, whose pods have another shape.
std::string role_fingerprint(const std::string& fingerprint, const Spec& spec,
                             const std::string& role);

/// The labels of the elastic role's pods, for the scale subresource.
std::string elastic_selector(const TrainingJob& job);

}  // namespace paceline::api
