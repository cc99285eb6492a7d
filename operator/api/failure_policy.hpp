// SPDX-License-Identifier: Apache-2.0
// Reads spec.failurePolicy, and checks its rules against the job's roles. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

void read_failure_policy(const nlohmann::json& value, FailurePolicy& policy, FieldErrors& errors);

/// Appends an error for each rule that names a role that does not exist, or that cannot start again
/// alone although the rule says RestartRank.
void check_failure_rules(const Spec& spec, FieldErrors& errors);

}  // namespace paceline::api
