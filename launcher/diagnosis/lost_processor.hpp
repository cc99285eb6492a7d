// SPDX-License-Identifier: Apache-2.0
// Whether ranks were ready to run and had no processor, and who took it. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/diagnosis/finding.hpp"
#include "launcher/diagnosis/window.hpp"

namespace paceline::diagnosis {

/// From this share of the time on.
inline constexpr double kLostShare = 0.2;

struct LostReason {
  std::string text;
  std::string advice;
};

/// Why this rank has less processor time than the others; nullopt if it has as much.
std::optional<LostReason> lost_processor(const Windows& windows, const RankWindow& rank);

/// If the median rank of the job lost that much.
std::optional<Finding> lost_by_all(const Windows& windows);

}  // namespace paceline::diagnosis
