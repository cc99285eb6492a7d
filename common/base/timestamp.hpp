// SPDX-License-Identifier: Apache-2.0
// Times as the Kubernetes API writes them (RFC 3339, UTC). Pure. Text that is not a time of the
// years 1970 to 2200 is kInvalid.
#pragma once

#include <string>
#include <string_view>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline {

std::string format_time(WallTime time);        // metav1.Time: 2026-01-02T03:04:05Z
std::string format_micro_time(WallTime time);  // metav1.MicroTime: 2026-01-02T03:04:05.000006Z
Result<WallTime> parse_time(std::string_view text);

}  // namespace paceline
