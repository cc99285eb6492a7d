// SPDX-License-Identifier: Apache-2.0
// Checks what a schema cannot express about a job. It needs a trainer container with a command, its
// template must not set fields that Paceline sets. A job that Paceline places must not ask for
// anything that its planner does not model; other schedulers decide that themselves. The operator
// writes the errors into a condition; `paceline run` prints them with their lines in the file.
//
// Pure and thread-safe. An empty list means that the job can run.
#pragma once

#include <span>
#include <string_view>

#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

/// Rules that apply wherever the job runs: trainer, command, reserved variables.
FieldErrors validate_program(const TrainingJob& job);

/// A field of a pod's spec that Paceline sets itself, and what to do about it.
struct OwnedField {
  std::string_view field;
  std::string_view remedy;
};
std::span<const OwnedField> owned_pod_fields();

/// Rules for a cluster: fields that Paceline sets, and, if Paceline places the job, scheduling
/// fields that its placement does not model, by name.
FieldErrors validate_for_cluster(const TrainingJob& job);

}  // namespace paceline::api
