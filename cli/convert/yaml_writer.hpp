// SPDX-License-Identifier: Apache-2.0
// Writes JSON as YAML that a person would write: blocks, short lists of words in one line, scripts
// as literal blocks. Strings that a reader of YAML 1.1 or 1.2 could take for something else are
// quoted. Pure; never fails.
#pragma once

#include <string>

#include "cli/convert/notes.hpp"

namespace paceline::cli {

/// Ends with a line break.
std::string to_yaml(const Json& document);

}  // namespace paceline::cli
