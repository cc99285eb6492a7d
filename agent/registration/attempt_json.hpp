// SPDX-License-Identifier: Apache-2.0
// One attempt as JSON: in paceline-probe's report, in the lines by which its child tells its
// progress, and in the proof cache. Pure; an Error names the field.
#pragma once

#include <nlohmann/json.hpp>

#include "agent/registration/attempt.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

nlohmann::json attempt_json(const Attempt& attempt);
Result<Attempt> read_attempt(const nlohmann::json& entry);

}  // namespace paceline::agent
