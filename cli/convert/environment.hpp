// SPDX-License-Identifier: Apache-2.0
// Variables of a container: leaves out those that Paceline's launcher sets for each rank, and notes
// what the command expects of another operator. Pure.
#pragma once

#include <string>

#include "cli/convert/notes.hpp"

namespace paceline::cli {

/// `path`: of the container in the source.
void carry_environment(Json& container, const std::string& path, Notes& notes);

}  // namespace paceline::cli
