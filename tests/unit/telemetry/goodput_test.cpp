// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/goodput.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/telemetry/stats/rank_stats.hpp"
#include "common/telemetry/stats/summary.hpp"
#include "testing/ring_fixture.hpp"

namespace paceline::telemetry {
namespace {

using Seconds = std::chrono::duration<double>;

SteadyTime at_second(double second) {
  return SteadyTime(std::chrono::duration_cast<SteadyTime::duration>(Seconds(second)));
}

RankSummary rank(int number, AttemptUse use) {
  RankSummary summary;
  summary.rank = number;
  summary.use = use;
  return summary;
}

/// An attempt whose ranks began with `lead` and have since done nothing but steps of a second.
AttemptUse steps(int attempt, double lead, std::uint64_t count) {
  AttemptUse use;
  use.attempt = attempt;
  use.lead = lead;
  use.steps = count;
  use.useful = use.since_checkpoint = static_cast<double>(count);
  return use;
}

AttemptUse checkpointed(AttemptUse use, double since) {
  use.checkpoints = 1;
  use.since_checkpoint = since;
  return use;
}

AttemptUse numbered(AttemptUse use, std::int64_t first, std::int64_t last) {
  use.first_user_step = first;
  use.last_user_step = last;
  return use;
}

void expect_uses(const Goodput& goodput, const UseSeconds& expected, const std::string& what) {
  for (std::size_t use = 0; use < kUses; ++use)
    EXPECT_NEAR(goodput.seconds[use], expected[use], 1e-6) << what << ": " << use_name(use);
}

struct Change {
  double at;
  Activity activity;
  int attempt;
  AttemptUse before;  // what the ranks last said of the attempt before
};

struct Case {
  const char* name;
  std::vector<Change> changes;
  double until;
  AttemptUse now;  // what the ranks say at the end
  // useful, waiting, starting, restarting, lost steps, checkpoint, evaluation, unexplained
  UseSeconds expected;
  int unknown = 0;
};

constexpr auto kRun = Activity::kRunning;
constexpr auto kRestart = Activity::kRestarting;
constexpr auto kEnd = Activity::kEnded;

std::vector<Case> cases() {
  AttemptUse mixed = steps(0, 3, 50);
  mixed.checkpoint = 4;
  mixed.evaluation = 6;
  mixed.unexplained = 1;
  AttemptUse too_much = steps(0, 30, 150);
  return {
      {"nobody is there", {}, 7, {}, {0, 7}, 0},
      {"no mark yet", {{5, kRun, 0, {}}}, 25, {}, {0, 5, 20}, 0},
      {"trains", {{5, kRun, 0, {}}}, 65, steps(0, 10, 48), {50, 5, 10}, 0},
      {"hangs", {{5, kRun, 0, {}}}, 165, steps(0, 10, 48), {52.5, 5, 10, 0, 0, 0, 0, 97.5}, 0},
      {"everything at once", {{5, kRun, 0, {}}}, 75, mixed, {50, 5, 3, 0, 0, 4, 6, 7}, 0},
      {"a rank's clock is wrong", {{0, kRun, 0, {}}}, 90, too_much, {75, 0, 15}, 0},
      {"ranks of another attempt say nothing",
       {{5, kRun, 1, {}}},
       15,
       steps(0, 1, 9),
       {0, 5, 10},
       0},
      {"time after the end is none",
       {{5, kRun, 0, {}}, {15, kEnd, 0, steps(0, 1, 9)}},
       500,
       steps(0, 1, 9),
       {9, 5, 1},
       0},
      {"a failure without any mark of a checkpoint",
       {{5, kRun, 0, {}}, {105, kRestart, 0, steps(0, 10, 90)}, {115, kRun, 1, {}}},
       145,
       steps(1, 10, 20),
       {110, 5, 10, 20},
       1},
      {"the first checkpoint tells that all before it was lost",
       {{5, kRun, 0, {}}, {105, kRestart, 0, steps(0, 10, 90)}, {115, kRun, 1, {}}},
       145,
       checkpointed(steps(1, 10, 20), 3),
       {20, 5, 10, 20, 90},
       0},
      {"steps after the last checkpoint are lost",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, checkpointed(steps(0, 10, 90), 30)},
        {105, kRun, 1, {}}},
       135,
       steps(1, 10, 20),
       {80, 0, 10, 15, 30},
       0},
      {"before the next step the checkpoint's word stands",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, checkpointed(steps(0, 10, 90), 30)},
        {105, kRun, 1, {}}},
       110,
       {},
       {60, 0, 10, 10, 30},
       0},
      {"the program's numbers tell better",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, numbered(checkpointed(steps(0, 10, 90), 30), 1, 90)},
        {105, kRun, 1, {}}},
       135,
       numbered(steps(1, 10, 20), 81, 100),
       {100, 0, 10, 15, 10},
       0},
      {"numbers alone",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, numbered(steps(0, 10, 90), 1, 90)},
        {105, kRun, 1, {}}},
       135,
       numbered(steps(1, 10, 20), 41, 60),
       {60, 0, 10, 15, 50},
       0},
      {"numbers that go on lose nothing",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, numbered(steps(0, 10, 90), 1, 90)},
        {105, kRun, 1, {}}},
       135,
       numbered(steps(1, 10, 20), 91, 110),
       {110, 0, 10, 15},
       0},
      {"no more is lost than was done",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, numbered(steps(0, 10, 90), 911, 1000)},
        {105, kRun, 1, {}}},
       135,
       numbered(steps(1, 10, 20), 1, 20),
       {20, 0, 10, 15, 90},
       0},
      {"an attempt that fails before its first step loses nothing more",
       {{0, kRun, 0, {}},
        {100, kRestart, 0, checkpointed(steps(0, 10, 90), 30)},
        {105, kRun, 1, {}},
        {125, kRestart, 1, {}},
        {130, kRun, 2, {}}},
       160,
       steps(2, 10, 20),
       {80, 0, 10, 40, 30},
       0},
      {"restart within one look",
       {{0, kRun, 0, {}}, {100, kRun, 1, checkpointed(steps(0, 10, 90), 30)}},
       130,
       steps(1, 10, 20),
       {80, 0, 10, 10, 30},
       0},
  };
}

TEST(Goodput, EverySecondHasOneUse) {
  for (const Case& one : cases()) {
    GoodputLedger ledger(at_second(0), {}, 0, false);
    for (const Change& change : one.changes)
      ledger.change(at_second(change.at), change.activity, change.attempt,
                    {rank(0, change.before)});
    const Goodput goodput = ledger.at(at_second(one.until), {rank(0, one.now)});
    expect_uses(goodput, one.expected, one.name);
    EXPECT_EQ(goodput.unknown_losses, one.unknown) << one.name;
  }
}

TEST(Goodput, TheMeanOfTheRanksThatMeasureCounts) {
  AttemptUse fast = checkpointed(steps(4, 10, 80), 7);
  AttemptUse slow = steps(4, 20, 60);
  const AttemptUse use =
      combine({rank(0, fast), rank(1, slow), rank(2, {}), rank(3, steps(3, 1, 9))}, 4);
  EXPECT_EQ(use.steps, 80U);
  EXPECT_DOUBLE_EQ(use.lead, 15);
  EXPECT_DOUBLE_EQ(use.useful, 70);
  EXPECT_DOUBLE_EQ(use.since_checkpoint, 7) << "rank 0 writes for all";
}

TEST(Goodput, WhatEarlierPodsKnewIsGoneOnWith) {
  Goodput earlier;
  earlier.seconds = {90, 5, 10, 0, 0, 2, 0, 3};
  earlier.trained = earlier.checkpointed = true;
  earlier.since_checkpoint = 30;
  for (const bool failed : {true, false}) {
    GoodputLedger ledger(at_second(50), earlier, 20, failed);
    ledger.change(at_second(60), kRun, 1, {});
    const Goodput goodput = ledger.at(at_second(100), {rank(0, steps(1, 8, 30))});
    expect_uses(
        goodput,
        failed ? UseSeconds{92, 5, 10, 38, 30, 2, 0, 3} : UseSeconds{92, 35, 18, 0, 30, 2, 0, 3},
        failed ? "failed" : "preempted");
    EXPECT_DOUBLE_EQ(goodput.wall(), 110 + 20 + 50);
  }
}

TEST(Goodput, ACopyHandedOnLosesNothingTwice) {
  GoodputLedger first(at_second(0), {}, 0, false);
  first.change(at_second(0), kRun, 0, {});
  first.change(at_second(100), kRestart, 0,
               {rank(0, numbered(checkpointed(steps(0, 10, 90), 30), 1, 90))});
  const Goodput told = first.at(at_second(110), {});
  EXPECT_DOUBLE_EQ(told[Use::kLostSteps], 30);
  GoodputLedger second(at_second(0), told, 0, true);
  second.change(at_second(0), kRun, 1, {});
  const Goodput goodput = second.at(at_second(30), {rank(0, numbered(steps(1, 10, 20), 61, 80))});
  EXPECT_DOUBLE_EQ(goodput[Use::kLostSteps], 30);
  EXPECT_DOUBLE_EQ(goodput.wall(), 140);
}

TEST(Goodput, AnyHistoryAddsUp) {
  std::mt19937 random(7);
  const auto pick = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    double now = 0;
    double wall = 0;
    int attempt = 0;
    Goodput earlier;
    for (int pod = 0; pod <= pick(3); ++pod) {
      const double gap = pick(50);
      const double began = now;
      GoodputLedger ledger(at_second(now), earlier, gap, pick(1) == 1);
      AttemptUse use;
      for (int change = 0; change <= pick(6); ++change) {
        now += pick(100);
        ledger.change(at_second(now), static_cast<Activity>(pick(2)), ++attempt, {rank(0, use)});
        use = steps(attempt, pick(20), static_cast<std::uint64_t>(pick(120)));
        if (pick(1) == 1) use = checkpointed(use, pick(150));
        if (pick(2) == 1) use = numbered(use, pick(1000), pick(1000));
      }
      now += pick(100);
      earlier = ledger.at(at_second(now), {rank(0, use)});
      wall += gap + now - began;
      ASSERT_NEAR(earlier.wall(), wall, 1e-6) << "round " << round;
      for (const double seconds : earlier.seconds) ASSERT_GE(seconds, 0) << "round " << round;
    }
  }
}

TEST(Goodput, RecordsTellWhatARankUsedItsTimeFor) {
  RankStats stats;
  stats.begin_attempt(2, at_second(1));
  auto one = test::step(1);  // 10 ms
  one.start_ns = 3'000'000'000;
  stats.add(one);
  auto saved = test::step(2);
  saved.host_ns[PACELINE_PHASE_CHECKPOINT] = 4'000'000;
  saved.host_ns[PACELINE_PHASE_EVALUATION] = 1'000'000;
  saved.user_step = 41;
  saved.valid |= PACELINE_VALID_USER_STEP;
  stats.add(saved);
  auto bare = test::step(3);
  bare.valid = 0;
  stats.add(bare);
  auto last = test::step(4);
  last.flags = PACELINE_FLAG_FINAL;
  stats.add(last);
  const AttemptUse use = stats.summary(0, 0).use;
  EXPECT_EQ(use.attempt, 2);
  EXPECT_EQ(use.steps, 3U);
  EXPECT_NEAR(use.lead, 2, 1e-9);
  EXPECT_NEAR(use.useful, 0.025, 1e-8) << "a step without phases is a step all the same";
  EXPECT_NEAR(use.since_checkpoint, 0.015, 1e-8);
  EXPECT_NEAR(use.checkpoint, 0.004, 1e-8);
  EXPECT_NEAR(use.evaluation, 0.001, 1e-8);
  EXPECT_NEAR(use.unexplained, 0.010, 1e-8);
  EXPECT_EQ(use.first_user_step, 41);
  stats.begin_attempt(3, at_second(9));
  EXPECT_EQ(stats.summary(0, 0).use.steps, 0U);
}

}  // namespace
}  // namespace paceline::telemetry
