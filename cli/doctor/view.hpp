// SPDX-License-Identifier: Apache-2.0
// How `paceline doctor` shows the findings of the checks: for people what fails first, with its remedy; for programs every finding. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"

namespace paceline::cli {

std::string doctor_text(const std::vector<agent::Finding>& findings);
nlohmann::json doctor_json(const std::vector<agent::Finding>& findings);

}  // namespace paceline::cli
