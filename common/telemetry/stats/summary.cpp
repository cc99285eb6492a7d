// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/summary.hpp"

#include <algorithm>
#include <utility>

#include "common/telemetry/stats/bottleneck.hpp"

namespace paceline::telemetry {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A rank's own time. In synchronous training all ranks have the same wall time; the slow rank is
// the one that waits least for the others.
double own_seconds(const PhaseSeconds& seconds) {
  return sum(seconds) - seconds[PACELINE_PHASE_COMM_EXPOSED] -
         seconds[PACELINE_PHASE_PIPELINE_BUBBLE];
}

}  // namespace

PhaseSeconds shares(const PhaseSeconds& seconds) {
  PhaseSeconds result{};
  const double total = sum(seconds);
  if (total <= 0) return result;
  for (std::size_t phase = 0; phase < kPhases; ++phase) result[phase] = seconds[phase] / total;
  return result;
}

JobSummary fold(std::vector<RankSummary> ranks, Span span) {
  JobSummary job;
  std::sort(ranks.begin(), ranks.end(),
            [](const RankSummary& a, const RankSummary& b) { return a.rank < b.rank; });
  std::vector<double> middles;
  std::vector<double> own;
  double slowest = 0;
  std::size_t measured = 0;
  bool of_gpu = false;
  for (const RankSummary& rank : ranks) {
    const PhaseSeconds& seconds = span == Span::kTotal ? rank.total : rank.window;
    const double wall = sum(seconds);
    job.step = std::max(job.step, rank.step);
    job.steps = std::max(job.steps, rank.steps);
    of_gpu = of_gpu || rank.host_times_of_gpu != 0;
    if (wall <= 0) continue;
    ++measured;
    job.p95 = std::max(job.p95, rank.p95);
    middles.push_back(rank.p50);
    if (span == Span::kTotal) {
      job.samples_per_second += static_cast<double>(rank.samples) / wall;
    } else {
      job.samples_per_second += rank.samples_per_second;
    }
    const PhaseSeconds rank_shares = shares(seconds);
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      job.breakdown[phase] += rank_shares[phase];
    const double rank_own = own_seconds(seconds) / wall;
    own.push_back(rank_own);
    if (job.slowest_rank < 0 || rank_own > slowest) {
      slowest = rank_own;
      job.slowest_rank = rank.rank;
    }
  }
  if (measured > 0) {
    for (double& share : job.breakdown) share /= static_cast<double>(measured);
    const double middle = median(own);
    job.skew = middle > 0 ? slowest / middle : 0;
  }
  job.p50 = median(std::move(middles));
  // The host runs ahead of its GPU, and waits wherever it reads a result: its times say nothing of
  // what limits the step.
  job.bottleneck = of_gpu ? "unknown" : bottleneck(job.breakdown);
  job.ranks = std::move(ranks);
  return job;
}

}  // namespace paceline::telemetry
