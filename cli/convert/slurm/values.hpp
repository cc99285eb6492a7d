// SPDX-License-Identifier: Apache-2.0
// Values of Slurm's options. Pure. Each returns nothing for what it cannot read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace paceline::cli {

/// "4", "h100:4" and "gpu:h100:4" → 4.
std::optional<std::int64_t> last_number(const std::string& text);

/// "90", "10:30", "2:00:00", "1-12", "1-12:30:00" in seconds.
std::optional<std::int64_t> time_limit(const std::string& text);

/// "64G" → "64Gi"; Slurm counts in mebibytes without a unit. Empty if it is no amount.
std::string memory(const std::string& text);

}  // namespace paceline::cli
