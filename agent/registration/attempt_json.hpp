// SPDX-License-Identifier: Apache-2.0
// One attempt as JSON: in the report, and in the lines by which the child of paceline-probe tells
// how far it is. Pure; failure names the field.
#pragma once

#include <nlohmann/json.hpp>

#include "agent/registration/registrations.hpp"

namespace paceline::agent {

nlohmann::json attempt_json(const Attempt& attempt);
Result<Attempt> read_attempt(const nlohmann::json& entry);

}  // namespace paceline::agent
