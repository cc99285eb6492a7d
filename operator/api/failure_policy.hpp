// SPDX-License-Identifier: Apache-2.0
// Reads spec.failurePolicy, and checks its rules and spares against the job's roles. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

void read_failure_policy(const nlohmann::json& value, FailurePolicy& policy, FieldErrors& errors);

/// Gives the last role its spares. Appends an error if no lost replica of the job could be replaced
/// by one. Call it when everything else has been read.
void add_spares(Spec& spec, FieldErrors& errors);

/// The job as it runs where nothing can be lost alone: on one machine.
void remove_spares(Spec& spec);

/// Appends an error for each rule that names a role that does not exist, or that cannot start again
/// alone although the rule says RestartRank.
void check_failure_rules(const Spec& spec, FieldErrors& errors);

}  // namespace paceline::api
