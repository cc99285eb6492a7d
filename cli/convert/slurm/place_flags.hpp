// SPDX-License-Identifier: Apache-2.0
// Flags of torchrun that say how many nodes there are and where the first of them is. The job's own
// fields say it. Pure; never fails.
#pragma once

#include <string>

namespace paceline::cli {

/// Removes these flags from the text of a command that starts torchrun or its module. Returns them
/// without quotes, separated by blanks.
std::string take_place_flags(std::string& command);

}  // namespace paceline::cli
