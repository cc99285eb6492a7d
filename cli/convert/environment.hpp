// SPDX-License-Identifier: Apache-2.0
// Variables of containers: leaves out those that Paceline's launcher sets for each rank, and notes
// what commands expect of another operator. Pure.
#pragma once

#include <string>

#include "cli/convert/job.hpp"
#include "cli/convert/notes.hpp"

namespace paceline::cli {

/// Whether the launcher sets the variable for the ranks of a job of that framework.
bool launcher_sets(const std::string& name, const std::string& framework);

/// Notes what the container's command expects of another operator. `path`: of the container in the
/// source.
void note_foreign(const Json& container, const std::string& path, Notes& notes);

/// Leaves out the variables that the launcher sets. The job's framework must be known.
void leave_out_variables(NewJob& job, Notes& notes);

}  // namespace paceline::cli
