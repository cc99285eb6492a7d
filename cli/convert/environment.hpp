// SPDX-License-Identifier: Apache-2.0
// Variables of containers: leaves out those that Paceline's launcher sets for each rank, sets those
// that commands expect of another operator, and notes what else they expect. Pure.
#pragma once

#include <string>

#include "cli/convert/job.hpp"
#include "cli/convert/notes.hpp"

namespace paceline::cli {

/// Whether the launcher sets the variable for the ranks of a job of that framework.
bool launcher_sets(const std::string& name, const std::string& framework);

/// Sets an index of the pod that the container's command expects of another operator, and notes
/// what else it expects. `path`: of the container in the source.
void adapt_foreign(Json& container, const std::string& path, Notes& notes);

/// Leaves out the variables that the launcher sets. The job's framework must be known.
void leave_out_variables(NewJob& job, Notes& notes);

}  // namespace paceline::cli
