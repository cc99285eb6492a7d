// SPDX-License-Identifier: Apache-2.0
// Values of Slurm's options. Pure. Each returns nothing for what it cannot read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace paceline::cli {

/// A number from 1 to a million.
std::optional<std::int64_t> count_of(const std::string& text);

struct GpuCount {
  std::int64_t number = 0;
  std::string others;  // what is no GPU: "nvme:1"
};
/// "4", "h100:4" and, with `gres`, "gpu:h100:4,nvme:1" → 4.
std::optional<GpuCount> gpu_count(const std::string& text, bool gres);

/// "90", "10:30", "2:00:00", "1-12", "1-12:30:00" in seconds.
std::optional<std::int64_t> time_limit(const std::string& text);

/// "64G" → "64Gi"; Slurm counts in mebibytes without a unit. Empty if it is no amount,
/// or 0.
std::string memory(const std::string& text);

}  // namespace paceline::cli
