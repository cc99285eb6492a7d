// SPDX-License-Identifier: Apache-2.0
// What a schema cannot say about a job: a trainer container with a command, nothing set in the
// template that Paceline sets itself, nothing asked of the scheduler that the planner does not
// model. The operator puts the answer into a condition, `paceline run` prints it with the line in
// the file.
//
// Pure and thread-safe. An empty list means that the job can run.
#pragma once

#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

/// Rules that hold wherever the job runs: trainer, command, reserved variables.
FieldErrors validate_program(const TrainingJob& job);

/// Rules of a cluster: fields that Paceline owns, and by name what placement does not model.
FieldErrors validate_for_cluster(const TrainingJob& job);

}  // namespace paceline::api
