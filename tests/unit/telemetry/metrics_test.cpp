// SPDX-License-Identifier: Apache-2.0
// Every metric of a rank changes with what it measures and with nothing else. The text passes
// promtool.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "common/telemetry/collector.hpp"
#include "common/telemetry/metrics/text_sink.hpp"
#include "testing/ring_fixture.hpp"

namespace paceline::telemetry {
namespace {

using std::chrono::seconds;
using test::step;
using test::TestRing;

constexpr std::uint64_t kMilli = 1'000'000;

struct MetricsTest : ::testing::Test {
  MetricsTest() {
    collector.begin_attempt(0, 0, 0, 1);
    ring.header().capabilities = PACELINE_CAPABILITY_HOST_MARKS;
    ring.header().heartbeat_ns = now();
    live(PACELINE_PHASE_FORWARD, 1);
  }

  std::uint64_t now() const {
    return static_cast<std::uint64_t>(clock.steady().time_since_epoch().count());
  }

  void live(std::uint32_t phase, std::uint64_t number) {
    ring.header().live.phase = phase;
    ring.header().live.since_ns = now();
    ring.header().live.step = number;
  }

  void offer(std::uint32_t attempt = 0) {
    paceline_ring_offer value{};
    value.attempt = attempt;
    key = *collector.add(value, ring.fd());
  }

  std::string text() {
    collector.poll();
    TextSink sink;
    collector.export_metrics(sink);
    return sink.text();
  }

  /// Values by series: name{labels that distinguish the series of one rank}.
  std::map<std::string, double> series() {
    std::map<std::string, double> found;
    std::stringstream lines(text());
    const std::string common =
        "namespace=\"ns\",job=\"job\",role=\"worker\",rank=\"0\",node=\"node-a\",gpu=\"\"";
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      const std::size_t space = line.rfind(' ');
      std::string name = line.substr(0, space);
      const std::size_t at = name.find(common);
      EXPECT_NE(at, std::string::npos) << line;
      if (at == std::string::npos) continue;
      name.erase(at, common.size() + (name[at + common.size()] == ',' ? 1 : 0));
      EXPECT_TRUE(found.emplace(name, std::stod(line.substr(space + 1))).second)
          << line << " stands there twice";
    }
    return found;
  }

  /// The series that differ after `act`, with the difference. A new series counts from 0; a removed
  /// one is 0.
  std::map<std::string, double> moved(const std::function<void()>& act) {
    auto before = series();
    act();
    const auto after = series();
    std::map<std::string, double> differences;
    for (const auto& [name, value] : after) {
      if (value != before[name]) differences[name] = value - before[name];
    }
    for (const auto& [name, value] : before) {
      if (value != 0 && !after.contains(name)) differences[name] = -value;
    }
    return differences;
  }

  static paceline_step_record empty(std::uint64_t number) {
    auto record = step(number, 0, 0);
    record.samples = 0;
    return record;
  }

  ManualClock clock;
  Collector collector{{"ns", "job", "worker", "node-a"}, clock};
  TestRing ring;
  std::uint64_t key = 0;
};

TEST_F(MetricsTest, AStepMovesTheHistogramTheStepsAndItsPhases) {
  offer();
  const auto differences = moved([&] { ring.publish(step(1, 6, 4)); });
  EXPECT_EQ(differences.at("paceline_steps_total{}"), 1);
  EXPECT_EQ(differences.at("paceline_samples_total{}"), 32);
  EXPECT_EQ(differences.at("paceline_step_seconds_count{}"), 1);
  EXPECT_DOUBLE_EQ(differences.at("paceline_step_seconds_sum{}"), 0.010);
  EXPECT_FALSE(differences.contains("paceline_step_seconds_bucket{le=\"0.005\"}"));
  EXPECT_EQ(differences.at("paceline_step_seconds_bucket{le=\"0.01\"}"), 1);
  EXPECT_EQ(differences.at("paceline_step_seconds_bucket{le=\"+Inf\"}"), 1);
  EXPECT_NEAR(differences.at("paceline_comm_seconds_total{exposed=\"true\"}"), 0.004, 1e-9);
}

TEST_F(MetricsTest, EachPhaseMovesItsOwnSeriesOnEachClock) {
  offer();
  auto both = empty(1);
  both.valid |= PACELINE_VALID_DEVICE_NS;
  ring.publish(both);
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const std::string name =
        "paceline_step_phase_seconds_total{phase=\"" + std::string(phase_name(phase)) + "\",clock=";
    auto record = both;
    record.wall_ns = record.host_ns[phase] = 5 * kMilli;
    record.device_ns[phase] = 3 * kMilli;
    const auto differences = moved([&] { ring.publish(record); });
    EXPECT_NEAR(differences.at(name + "\"host\"}"), 0.005, 1e-9);
    EXPECT_NEAR(differences.at(name + "\"device\"}"), 0.003, 1e-9);
    std::size_t moved_phases = 0;
    for (const auto& entry : differences)
      moved_phases += entry.first.starts_with("paceline_step_phase") ? 1 : 0;
    EXPECT_EQ(moved_phases, 2U) << phase_name(phase);
  }
}

TEST_F(MetricsTest, HiddenCommunicationIsWhatIsNotExposed) {
  offer();
  auto record = empty(1);
  record.comm_total_ns = 9 * kMilli;
  record.comm_exposed_ns = 2 * kMilli;
  record.valid |= PACELINE_VALID_COMM_TOTAL_NS | PACELINE_VALID_COMM_EXPOSED_NS;
  const auto differences = moved([&] { ring.publish(record); });
  EXPECT_NEAR(differences.at("paceline_comm_seconds_total{exposed=\"true\"}"), 0.002, 1e-9);
  EXPECT_NEAR(differences.at("paceline_comm_seconds_total{exposed=\"false\"}"), 0.007, 1e-9);
}

TEST_F(MetricsTest, ASkippedOptimizerAndALostRecordAreCounted) {
  offer();
  auto skipped = empty(1);
  skipped.flags = PACELINE_FLAG_SCALER_SKIP;
  EXPECT_EQ(moved([&] { ring.publish(skipped); }).at("paceline_scaler_skipped_steps_total{}"), 1);
  auto lost = empty(2);
  lost.lost_events = 3;
  lost.valid |= PACELINE_VALID_LOST_EVENTS;
  const auto differences = moved([&] { ring.publish(lost); });
  EXPECT_EQ(differences.at("paceline_dropped_records_total{}"), 3);
  EXPECT_FALSE(differences.contains("paceline_scaler_skipped_steps_total{}"));
}

TEST_F(MetricsTest, WhatARankDoesNowShowsWithoutAnyRecord) {
  offer();
  clock.advance(seconds(7));
  auto found = series();
  EXPECT_EQ(found.at("paceline_live_phase_seconds{phase=\"forward\"}"), 7);
  EXPECT_EQ(found.at("paceline_live_step{}"), 1);
  live(PACELINE_PHASE_COMM_EXPOSED, 2);
  clock.advance(seconds(1));
  found = series();
  EXPECT_EQ(found.at("paceline_live_phase_seconds{phase=\"comm_exposed\"}"), 1);
  EXPECT_FALSE(found.contains("paceline_live_phase_seconds{phase=\"forward\"}"));
  EXPECT_EQ(found.at("paceline_live_step{}"), 2);
}

TEST_F(MetricsTest, TheSummaryTellsHowFarTheCollectivesOfNcclAre) {
  offer();
  struct Case {
    std::uint64_t called, done;
    std::int64_t told;
  };
  const std::vector<Case> cases{
      {12, 11, 11}, {12, 12, 12}, {12, PACELINE_COLLECTIVE_UNKNOWN, -1}, {12, 13, -1}, {0, 0, -1}};
  for (const Case& each : cases) {
    ring.header().live.collective_seq = each.called;
    ring.header().live.collective_done = each.done;
    ring.header().live.group_size = 8;
    const auto told = collector.summaries();
    ASSERT_TRUE(told.size() == 1 && told[0].live);
    EXPECT_EQ(told[0].live->collective, each.called);
    EXPECT_EQ(told[0].live->done, each.told) << each.done;
    EXPECT_EQ(told[0].live->group_size, 8U);
  }
}

TEST_F(MetricsTest, NonsenseOfARankIsLeftOut) {
  offer();
  ring.header().live.phase = 16;
  EXPECT_FALSE(text().contains("paceline_live_"));
  live(PACELINE_PHASE_FORWARD, 1);
  ring.header().live.since_ns = now() + 5'000 * kMilli;  // a time in the future
  EXPECT_EQ(series().at("paceline_live_phase_seconds{phase=\"forward\"}"), 0);
  ring.header().live.version = 1;  // the write never ends
  EXPECT_FALSE(text().contains("paceline_live_"));
}

TEST_F(MetricsTest, TheProfilerStateSaysWhatMeasuresAndWhyNot) {
  const auto host = [&](const std::string& reason) {
    return series().at("paceline_profiler_state{source=\"host\",reason=\"" + reason + "\"}");
  };
  EXPECT_EQ(host("no_training_mark_yet"), 0);
  EXPECT_FALSE(text().contains("paceline_steps_total{")) << "absent is not zero";
  offer();
  EXPECT_EQ(host("measuring"), 1);
  for (const std::string source : {"event", "nccl", "cupti"})
    EXPECT_EQ(
        series().at("paceline_profiler_state{source=\"" + source + "\",reason=\"not_offered\"}"),
        0);
  clock.advance(seconds(6));
  EXPECT_EQ(host("silent"), 0);
  ring.header().heartbeat_ns = now();
  EXPECT_EQ(host("measuring"), 1);
  ring.publish(step(1));
  ring.header().heartbeat_ns = 0;
  EXPECT_EQ(host("ended"), 0);
  EXPECT_FALSE(text().contains("paceline_live_"));
  collector.remove(key);
  EXPECT_EQ(host("ended"), 0);
  collector.begin_attempt(1, 0, 0, 1);
  EXPECT_EQ(host("no_training_mark_yet"), 0);
}

TEST_F(MetricsTest, ARingThatDidNotBeatYetIsStarting) {
  ring.header().heartbeat_ns = 0;
  offer();
  EXPECT_EQ(series().at("paceline_profiler_state{source=\"host\",reason=\"starting\"}"), 0);
}

TEST_F(MetricsTest, EverySourceThatIsOfferedIsOn) {
  ring.header().capabilities = 0xf;
  offer();
  for (const std::string source : {"host", "event", "nccl", "cupti"})
    EXPECT_EQ(
        series().at("paceline_profiler_state{source=\"" + source + "\",reason=\"measuring\"}"), 1);
}

TEST_F(MetricsTest, TheNewestRingOfARankSpeaks) {
  offer();
  ring.header().heartbeat_ns = 0;
  ring.header().write_index = 0;
  TestRing second;
  second.header().capabilities = PACELINE_CAPABILITY_HOST_MARKS;
  second.header().heartbeat_ns = now();
  ASSERT_TRUE(collector.add(paceline_ring_offer{}, second.fd()).has_value());
  EXPECT_EQ(series().at("paceline_profiler_state{source=\"host\",reason=\"measuring\"}"), 1);
}

TEST_F(MetricsTest, PromtoolAcceptsEveryFamily) {
  offer();
  auto record = step(1);
  record.valid |=
      PACELINE_VALID_DEVICE_NS | PACELINE_VALID_COMM_TOTAL_NS | PACELINE_VALID_COMM_EXPOSED_NS;
  ring.publish(record);
  const std::string exposition = text();
  std::set<std::string> families;
  std::stringstream lines(exposition);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) families.insert(line.substr(7, line.rfind(' ') - 7));
  }
  EXPECT_EQ(families,
            (std::set<std::string>{"paceline_step_seconds", "paceline_step_phase_seconds_total",
                                   "paceline_comm_seconds_total", "paceline_steps_total",
                                   "paceline_samples_total", "paceline_scaler_skipped_steps_total",
                                   "paceline_dropped_records_total", "paceline_profiler_state",
                                   "paceline_live_phase_seconds", "paceline_live_step"}))
      << "a new metric wants a test here that it moves, and a row in docs/reference/contract.md";
  const auto file =
      std::filesystem::temp_directory_path() / ("paceline-metrics-" + std::to_string(::getpid()));
  std::ofstream(file) << exposition;
  EXPECT_EQ(std::system(("promtool check metrics < " + file.string()).c_str()), 0) << exposition;
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace paceline::telemetry
