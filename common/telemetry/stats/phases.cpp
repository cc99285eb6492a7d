// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/phases.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::telemetry {
namespace {

constexpr std::array<std::string_view, kPhases> kNames{
    "data_wait",  "h2d",        "forward",   "backward",        "comm_exposed",      "optimizer",
    "checkpoint", "evaluation", "recompute", "pipeline_bubble", "compute_undivided", "memcpy_other",
    "idle_host",  "idle_gap",   "other",     "unattributed"};

}  // namespace

std::string_view phase_name(std::size_t phase) {
  return phase < kPhases ? kNames[phase] : "unknown";
}

std::size_t phase_of(std::string_view name) {
  return static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

double sum(const PhaseSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

}  // namespace paceline::telemetry
