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
  stats.begin_attempt(1, {});
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
  stats.begin_attempt(1, {});
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

RankSummary on_gpu(int number, std::initializer_list<std::pair<int, double>> device) {
  RankSummary summary = rank(number, 1, 9);  // the host waits inside backward: not the device
  for (const auto& [phase, seconds] : device)
    summary.device_window[static_cast<std::size_t>(phase)] = seconds;
  summary.device_total = summary.device_window;
  return summary;
}

TEST(Fold, TheDeviceOfAGpuJobNamesTheBottleneck) {
  const RankSummary computes = on_gpu(0, {{PACELINE_PHASE_FORWARD, 6},
                                          {PACELINE_PHASE_BACKWARD, 3.5},
                                          {PACELINE_PHASE_DATA_WAIT, 0.5}});
  JobSummary job = fold({computes}, Span::kWindow);
  EXPECT_EQ(job.bottleneck, "compute");
  ASSERT_TRUE(job.device.has_value());
  EXPECT_NEAR(sum(job.device->breakdown), 1, 1e-9);
  EXPECT_NEAR(job.device->idle, 0.05, 1e-9);
  EXPECT_EQ(fold({computes}, Span::kTotal).bottleneck, "compute");
  const RankSummary waits = on_gpu(1, {{PACELINE_PHASE_FORWARD, 3}, {PACELINE_PHASE_DATA_WAIT, 7}});
  job = fold({computes, waits}, Span::kWindow);
  EXPECT_EQ(job.bottleneck, "data");
  EXPECT_NEAR(job.device->breakdown[PACELINE_PHASE_DATA_WAIT], 0.375, 1e-9);
  EXPECT_EQ(fold({on_gpu(0, {{PACELINE_PHASE_FORWARD, 6}, {PACELINE_PHASE_COMM_EXPOSED, 4}})},
                 Span::kWindow)
                .bottleneck,
            "communication");
}

TEST(Fold, ADeviceThatFollowsItsHostMayWaitForItUnseen) {
  RankSummary follows = on_gpu(0, {{PACELINE_PHASE_FORWARD, 6}});
  follows.device_follows = 0.9;
  EXPECT_EQ(fold({follows}, Span::kWindow).bottleneck, "unknown");
  // A source that sees kernels has found the gaps.
  follows.device_window[PACELINE_PHASE_IDLE_GAP] = 4;
  EXPECT_EQ(fold({follows}, Span::kWindow).bottleneck, "host");
  follows.device_window[PACELINE_PHASE_IDLE_GAP] = 0.5;
  EXPECT_EQ(fold({follows}, Span::kWindow).bottleneck, "compute");
  // Waiting for a batch is seen by events.
  follows.device_window = {};
  follows.device_window[PACELINE_PHASE_DATA_WAIT] = 6;
  EXPECT_EQ(fold({follows}, Span::kWindow).bottleneck, "data");
}

TEST(Fold, OnGpusTheSlowestRankIsJudgedByItsDevice) {
  const auto ranks = {on_gpu(0, {{PACELINE_PHASE_FORWARD, 5}, {PACELINE_PHASE_COMM_EXPOSED, 5}}),
                      on_gpu(1, {{PACELINE_PHASE_FORWARD, 9}, {PACELINE_PHASE_COMM_EXPOSED, 1}}),
                      on_gpu(2, {{PACELINE_PHASE_FORWARD, 5}, {PACELINE_PHASE_COMM_EXPOSED, 5}})};
  const JobSummary job = fold(ranks, Span::kWindow);
  EXPECT_EQ(job.slowest_rank, 1);
  EXPECT_NEAR(job.skew, 1.8, 1e-9);
}

TEST(RankStats, DeviceTimesAreOfTheWindowAndOfAllSteps) {
  RankStats stats;
  stats.set_on_gpu(true);
  stats.add(step(1));
  EXPECT_EQ(stats.summary(0, 0).host_times_of_gpu, 1);
  EXPECT_EQ(stats.totals().device_phases, 0U);
  auto record = step(2);
  record.valid |= PACELINE_VALID_DEVICE_NS;
  record.device_ns[PACELINE_PHASE_FORWARD] = 8'000'000;
  record.source[PACELINE_PHASE_FORWARD] = PACELINE_SOURCE_EVENT << 4U;
  record.source[PACELINE_PHASE_OPTIMIZER] = PACELINE_SOURCE_EVENT << 4U;  // measured as 0
  record.flags = PACELINE_FLAG_DEVICE_FOLLOWS;
  stats.add(record);
  RankSummary summary = stats.summary(0, 0);
  EXPECT_EQ(summary.host_times_of_gpu, 0);
  EXPECT_NEAR(summary.device_window[PACELINE_PHASE_FORWARD], 0.008, 1e-9);
  EXPECT_NEAR(summary.device_follows, 0.5, 1e-9);
  EXPECT_EQ(stats.totals().device_phases,
            1U << PACELINE_PHASE_FORWARD | 1U << PACELINE_PHASE_OPTIMIZER);
  stats.begin_attempt(2, SteadyTime{});
  summary = stats.summary(0, 0);
  EXPECT_EQ(sum(summary.device_window), 0);
  EXPECT_NEAR(summary.device_total[PACELINE_PHASE_FORWARD], 0.008, 1e-9);
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
