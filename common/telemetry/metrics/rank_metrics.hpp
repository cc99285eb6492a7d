// SPDX-License-Identifier: Apache-2.0
// The metrics of ranks: names, labels and meaning, in one place for every program that serves them.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/metrics/metrics_sink.hpp"
#include "common/telemetry/stats/rank_state.hpp"
#include "common/telemetry/stats/rank_stats.hpp"

namespace paceline::telemetry {

/// Who the ranks are, from a source the ranks cannot influence: labels of every series.
struct Identity {
  std::string job_namespace;
  std::string job;
  std::string role;
  std::string node;
};

struct RankView {
  const Identity* identity;  // outlives the view
  int rank;
  std::optional<RankTotals> totals;  // absent before its first ring: not zero
  std::optional<LiveState> live;
  ProfilerStates profilers;
  std::string gpu = {};  // where it is known from a trusted source
};

/// Of ranks of any jobs; no two of them have the same labels.
void export_ranks(const std::vector<RankView>& ranks, MetricsSink& sink);

}  // namespace paceline::telemetry
