// SPDX-License-Identifier: Apache-2.0
// Whether the roles of a job make sense to its framework: which kinds it knows, and how many of
// each it takes. Pure.
#pragma once

#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

/// Appends an error for each role that the framework does not take, and for each that it lacks.
void check_roles(const Spec& spec, FieldErrors& errors);

/// Whether a worker that fails or is lost starts again while the others go on.
bool workers_fail_alone(const Spec& spec);

}  // namespace paceline::api
