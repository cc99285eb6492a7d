// SPDX-License-Identifier: Apache-2.0
// What one rank was doing when its launcher last reported. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/telemetry/stats/summary.hpp"
#include "launcher/diagnosis/stack_text.hpp"

namespace paceline::diagnosis {

struct RankAt {
  int rank = 0;
  std::string node = {};
  std::uint64_t steps = 0;  // ever seen
  double p95 = 0;
  std::optional<telemetry::LiveState> live = {};
  std::optional<StackFacts> stack = {};  // nullopt before they were captured
};

}  // namespace paceline::diagnosis
