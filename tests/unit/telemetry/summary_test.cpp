// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/summary.hpp"

#include <gtest/gtest.h>

#include "common/telemetry/stats/bottleneck.hpp"
#include "common/telemetry/stats/rank_stats.hpp"
#include "testing/ring_fixture.hpp"

namespace paceline::telemetry {
namespace {

using test::step;

TEST(RankStats, AddsUpAndKeepsTotalsOverAttempts) {
  RankStats stats;
  for (std::uint64_t number = 1; number <= 100; ++number)
    stats.add(step(number, number == 100 ? 96 : 6, 4));
  auto summary = stats.summary(3, 1);
  EXPECT_EQ(summary.rank, 3);
  EXPECT_EQ(summary.step, 100U);
  EXPECT_NEAR(summary.p50, 0.010, 1e-6);
  EXPECT_NEAR(summary.p95, 0.010, 1e-6);
  EXPECT_NEAR(summary.samples_per_second, 3200 / 1.09, 0.5);
  EXPECT_NEAR(summary.window[PACELINE_PHASE_COMM_EXPOSED], 0.4, 1e-4);
  stats.begin_attempt();
  summary = stats.summary(3, 1);
  EXPECT_EQ(summary.step, 0U);
  EXPECT_EQ(summary.steps, 100U);
  EXPECT_EQ(summary.p50, 0);
  EXPECT_EQ(stats.totals().samples, 3200U);
}

TEST(RankStats, TheFirstStepsOfAnAttemptAreNotSettled) {
  RankStats stats;
  for (std::uint64_t number = 1; number <= kWarmSteps; ++number) stats.add(step(number, 500, 4));
  EXPECT_EQ(stats.summary(0, 0).settled.steps, 0U);
  for (std::uint64_t number = 1; number <= 10; ++number) stats.add(step(kWarmSteps + number, 6, 4));
  EXPECT_EQ(stats.summary(0, 0).settled.steps, 10U);
  EXPECT_NEAR(stats.summary(0, 0).settled.seconds, 0.1, 1e-9);
  stats.begin_attempt();
  stats.add(step(1, 6, 4));
  EXPECT_EQ(stats.summary(0, 0).settled.steps, 0U) << "another attempt warms up again";
}

TEST(RankStats, TheRecordAfterTheLastStepIsTimeButNoStep) {
  RankStats stats;
  stats.add(step(1));
  auto final_record = step(2);
  final_record.flags = PACELINE_FLAG_FINAL;
  stats.add(final_record);
  EXPECT_EQ(stats.totals().steps, 1U);
  EXPECT_NEAR(stats.totals().wall_seconds, 0.020, 1e-9);
}

TEST(RankStats, AStepWithoutAPartitionIsUnattributedNotIdle) {
  RankStats stats;
  auto bare = step(1);
  bare.valid = 0;
  stats.add(bare);
  EXPECT_NEAR(stats.totals().host[PACELINE_PHASE_UNATTRIBUTED], 0.010, 1e-9);
  EXPECT_EQ(stats.totals().samples, 0U);
}

RankSummary rank(int number, double forward, double comm) {
  RankSummary summary;
  summary.rank = number;
  summary.step = 10;
  summary.p50 = 0.1;
  summary.p95 = 0.2;
  summary.samples = 100;
  summary.samples_per_second = 50;
  summary.window[PACELINE_PHASE_FORWARD] = forward;
  summary.window[PACELINE_PHASE_COMM_EXPOSED] = comm;
  summary.total = summary.window;
  return summary;
}

TEST(Fold, TheHostsTimesOfAGpuNameNoBottleneck) {
  auto other = rank(1, 1, 9);
  EXPECT_EQ(fold({rank(0, 1, 9), other}, Span::kWindow).bottleneck, "communication");
  other.host_times_of_gpu = 1;
  EXPECT_EQ(fold({rank(0, 1, 9), other}, Span::kWindow).bottleneck, "unknown");
}

TEST(Fold, TheSlowestRankIsTheOneThatWaitsLeast) {
  const JobSummary job = fold({rank(2, 9, 1), rank(0, 5, 5), rank(1, 5, 5)}, Span::kWindow);
  EXPECT_EQ(job.slowest_rank, 2);
  EXPECT_NEAR(job.skew, 0.9 / 0.5, 1e-9);
  EXPECT_NEAR(sum(job.breakdown), 1.0, 1e-9);
  EXPECT_NEAR(job.samples_per_second, 150, 1e-9);
  EXPECT_EQ(job.ranks.front().rank, 0);
  EXPECT_EQ(job.bottleneck, "communication");
  EXPECT_NEAR(fold({rank(0, 5, 5)}, Span::kTotal).samples_per_second, 10, 1e-9);
}

TEST(Fold, NothingMeasuredIsUnknown) {
  const JobSummary job = fold({}, Span::kWindow);
  EXPECT_EQ(job.slowest_rank, -1);
  EXPECT_EQ(job.bottleneck, "unknown");
  EXPECT_EQ(fold({RankSummary{}}, Span::kWindow).bottleneck, "unknown");
}

TEST(Bottleneck, NamesTheClassThatPassesItsThresholdByMost) {
  PhaseSeconds shares{};
  shares[PACELINE_PHASE_FORWARD] = 0.81;
  shares[PACELINE_PHASE_DATA_WAIT] = 0.19;
  EXPECT_EQ(bottleneck(shares), "compute");
  shares[PACELINE_PHASE_FORWARD] = 0.45;
  shares[PACELINE_PHASE_DATA_WAIT] = 0.25;
  shares[PACELINE_PHASE_OTHER] = 0.30;
  EXPECT_EQ(bottleneck(shares), "data");
  shares[PACELINE_PHASE_UNATTRIBUTED] = 3;
  EXPECT_EQ(bottleneck(telemetry::shares(shares)), "unknown");
}

}  // namespace
}  // namespace paceline::telemetry
