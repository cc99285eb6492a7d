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

void add_shares(PhaseSeconds& to, const PhaseSeconds& shares) {
  for (std::size_t phase = 0; phase < kPhases; ++phase) to[phase] += shares[phase];
}

// The mean over the ranks whose device is measured.
struct DeviceMean {
  PhaseSeconds shares{};
  double follows = 0;
  int ranks = 0;

  void add_rank(const PhaseSeconds& seconds, double rank_follows) {
    add_shares(shares, paceline::telemetry::shares(seconds));
    follows += rank_follows;
    ++ranks;
  }

  std::string_view bottleneck(const DeviceSummary& device) const {
    const std::string_view name = paceline::telemetry::bottleneck(device.breakdown);
    // A device that never lags behind its host may wait for it between two kernels. Only a source
    // that sees kernels can tell.
    const bool gaps_known =
        device.breakdown[PACELINE_PHASE_IDLE_HOST] + device.breakdown[PACELINE_PHASE_IDLE_GAP] > 0;
    return name == "compute" && !gaps_known && follows > 0.5 * ranks ? "unknown" : name;
  }
};

}  // namespace

PhaseSeconds shares(const PhaseSeconds& seconds) {
  PhaseSeconds result{};
  const double total = sum(seconds);
  if (total <= 0) return result;
  for (std::size_t phase = 0; phase < kPhases; ++phase) result[phase] = seconds[phase] / total;
  return result;
}

std::optional<DeviceSummary> device_summary(const PhaseSeconds& seconds) {
  if (sum(seconds) <= 0) return std::nullopt;
  DeviceSummary device{shares(seconds), 0};
  for (const auto phase :
       {PACELINE_PHASE_DATA_WAIT, PACELINE_PHASE_IDLE_HOST, PACELINE_PHASE_IDLE_GAP})
    device.idle += device.breakdown[phase];
  return device;
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
  DeviceMean device;
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
      job.tokens_per_second += static_cast<double>(rank.tokens) / wall;
    } else {
      job.samples_per_second += rank.samples_per_second;
      job.tokens_per_second += rank.tokens_per_second;
    }
    add_shares(job.breakdown, shares(seconds));
    const PhaseSeconds& device_seconds =
        span == Span::kTotal ? rank.device_total : rank.device_window;
    const bool has_device = sum(device_seconds) > 0;
    if (has_device) device.add_rank(device_seconds, rank.device_follows);
    // A host that runs ahead of its device does not show where the rank waits for others.
    const PhaseSeconds& judged = has_device ? device_seconds : seconds;
    const double rank_own = own_seconds(judged) / sum(judged);
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
  job.device = device_summary(device.shares);
  // The host runs ahead of its GPU, and waits wherever it reads a result: its times say nothing of
  // what limits the step.
  job.bottleneck = job.device ? device.bottleneck(*job.device)
                   : of_gpu   ? "unknown"
                              : bottleneck(job.breakdown);
  job.ranks = std::move(ranks);
  return job;
}

}  // namespace paceline::telemetry
