// SPDX-License-Identifier: Apache-2.0
// What Paceline says of a converted job: the operator's checks, then the launcher's checks of the
// commands. Pure.
#pragma once

#include "cli/convert/notes.hpp"
#include "operator/api/field_error.hpp"

namespace paceline::cli {

/// Errors with paths of the TrainingJob; none if the job can run.
api::FieldErrors judge(const Json& document);

}  // namespace paceline::cli
