// SPDX-License-Identifier: Apache-2.0
// The metrics of ranks: names, labels and meaning, in one place for every program that serves them. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/metrics_sink.hpp"
#include "common/telemetry/rank_state.hpp"
#include "common/telemetry/rank_stats.hpp"

namespace paceline::telemetry {

/// Who the ranks are, from a source the ranks cannot influence: labels of every series.
struct Identity {
  std::string job_namespace;
  std::string job;
  std::string role;
  std::string node;
};

struct RankView {
  int rank;
  const RankTotals* totals;  // null before its first ring: absent, not zero
  std::optional<LiveState> live;
  ProfilerStates profilers;
};

void export_ranks(const Identity& identity, const std::vector<RankView>& ranks, MetricsSink& sink);

}  // namespace paceline::telemetry
