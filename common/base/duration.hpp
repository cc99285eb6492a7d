// SPDX-License-Identifier: Apache-2.0
// Durations as people write them in job files and read them in status: "30s", "1h30m", "12.3ms".
// Pure functions; errors name the text.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline {

/// Parses one or more number-unit pairs, units h, m, s, ms, us; "0" needs no unit. Refuses signs,
/// blanks, and more than 10 years.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// The shortest readable form with three significant digits below a minute ("12.3ms", "1.52s"),
/// whole units above ("1h30m").
std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace paceline
