// SPDX-License-Identifier: Apache-2.0
// Every check with its findings as JSON: `paceline doctor --json` prints it and the agent serves it
// as /v1/checks. Pure.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"

namespace paceline::agent {

nlohmann::json checks_json(const std::vector<Finding>& findings);

}  // namespace paceline::agent
