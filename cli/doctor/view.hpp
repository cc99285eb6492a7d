// SPDX-License-Identifier: Apache-2.0
// How `paceline doctor` shows the findings of the checks to people: what fails first, with its
// remedy. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/inspect/inspect.hpp"

namespace paceline::cli {

std::string doctor_text(const std::vector<agent::Finding>& findings);

}  // namespace paceline::cli
