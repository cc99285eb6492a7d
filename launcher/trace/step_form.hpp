// SPDX-License-Identifier: Apache-2.0
// A step record as JSON, for traces. Absent facts are left out. Pure.
#pragma once

#include <chrono>

#include <nlohmann/json.hpp>

#include "common/telemetry/ring/recent_steps.hpp"

namespace paceline::traces {

/// `to_wall`: what is added to the record's monotonic time to get the wall time.
nlohmann::json step_form(const paceline_step_record& record, std::chrono::nanoseconds to_wall);

}  // namespace paceline::traces
