// SPDX-License-Identifier: Apache-2.0
// What roles and framework a job has whose kind does not say it: JobSet, Volcano's Job. The
// commands decide, then images and names. What was guessed from names is noted. Pure.
#pragma once

#include <string>

#include "cli/convert/job.hpp"

namespace paceline::cli {

/// Sets framework and kinds of roles, and commands of MPI workers. Call it once all roles are read.
/// `source`: the document; `path`: the list of roles in it.
void guess_roles(NewJob& job, const Json& source, const std::string& path, Notes& notes);

}  // namespace paceline::cli
