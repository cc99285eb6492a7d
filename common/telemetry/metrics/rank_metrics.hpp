// SPDX-License-Identifier: Apache-2.0
// The names, labels and meaning of all metrics of ranks. Every program that serves such metrics
// uses this. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/metrics/metrics_sink.hpp"
#include "common/telemetry/stats/rank_state.hpp"
#include "common/telemetry/stats/rank_stats.hpp"

namespace paceline::telemetry {

/// The identity of the ranks, from a source that the ranks cannot influence. Labels of every
/// series.
struct Identity {
  std::string job_namespace;
  std::string job;
  std::string role;
  std::string node;
};

struct RankView {
  const Identity* identity;  // outlives the view
  int rank;
  std::optional<RankTotals> totals;  // nullopt before its first ring, which is not the same as zero
  std::optional<LiveState> live;
  ProfilerStates profilers;
  std::string gpu = {};  // empty unless a trusted source names it
};

/// The ranks may belong to several jobs; no two have the same labels.
void export_ranks(const std::vector<RankView>& ranks, MetricsSink& sink);

}  // namespace paceline::telemetry
