// SPDX-License-Identifier: Apache-2.0
// Durations as people write them in job files and read them in status: "30s", "1h30m", "12.3ms".
// Pure functions; errors name the text.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline {

/// Parses one or more number-unit pairs. Units are h, m, s, ms and us; "0" needs no unit. Refuses
/// signs, blanks, and durations above 10 years.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// Below a minute three significant digits ("12.3ms", "1.52s"), above it whole units ("1h30m").
std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace paceline
