// SPDX-License-Identifier: Apache-2.0
// What launchers tell of checkpoints before a pod goes, into status.checkpoint.
#include <gtest/gtest.h>

#include "operator/status/training.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;

json saved(const json& step, const json& attempt) {
  return {{"lastStep", step}, {"attempt", attempt}};
}

json told(const json& checkpoint) {
  return {
      {"version", 1}, {"verdict", "Terminated"}, {"phase", "Running"}, {"checkpoint", checkpoint}};
}

TEST(Checkpoint, ReportsAreReadLeniently) {
  const auto read = [](const json& checkpoint) {
    return status::read_report(told(checkpoint).dump())->checkpoint;
  };
  EXPECT_EQ(read(saved(12, 3)), saved(12, 3));
  EXPECT_EQ(read({{"lastStep", 0}}), saved(0, 0));
  for (const json& wrong :
       {json(), json(1), json::object(), saved("12", 3), saved(-1, 3), saved(1e300, 3)})
    EXPECT_TRUE(read(wrong).is_null()) << wrong.dump();
}

TEST(Checkpoint, OfALaterAttemptOrStepReplacesAnEarlierOne) {
  EXPECT_EQ(status::later_checkpoint(json(), saved(5, 0)), saved(5, 0));
  EXPECT_EQ(status::later_checkpoint(saved(5, 0), json()), saved(5, 0));
  EXPECT_EQ(status::later_checkpoint(saved(5, 0), saved(2, 1)), saved(2, 1));
  EXPECT_EQ(status::later_checkpoint(saved(2, 1), saved(5, 0)), saved(2, 1)) << "read late";
  EXPECT_EQ(status::later_checkpoint(saved(5, 1), saved(9, 1)), saved(9, 1));
  EXPECT_EQ(status::later_checkpoint(saved(9, 1), saved(5, 1)), saved(9, 1)) << "read late";
}

TEST(Checkpoint, OfALaterStepReplacesThatOfAnEarlierOneOfItsAttempt) {
  EXPECT_EQ(status::later_checkpoint(saved(5, 1), saved(9, 1)), saved(9, 1));
  EXPECT_EQ(status::later_checkpoint(saved(9, 1), saved(5, 1)), saved(9, 1)) << "read late";
}

TEST(Checkpoint, IsShownFromRankZerosSummary) {
  JobBench bench;
  bench.run();
  bench.memory.summary = status::read_report(told(saved(12, 0)).dump());
  bench.settle();
  EXPECT_EQ(bench.status().checkpoint, saved(12, 0));
  bench.restart_operator();
  bench.memory.summary = status::read_report(told(json()).dump());
  bench.settle();
  EXPECT_EQ(bench.status().checkpoint, saved(12, 0)) << "the next launcher knows of none";
}

TEST(Checkpoint, IsShownFromPodsThatWereSeenToStopBefore) {
  JobBench bench;
  bench.run();
  // as `kubectl drain` of a node with both
  for (const int rank : {1, 0}) bench.pod(rank).deleting = true;
  bench.settle();
  EXPECT_EQ(bench.status().reason, "PodStopping");
  bench.end(1, 143, told(saved(40, 0)));
  bench.settle();
  EXPECT_EQ(bench.status().checkpoint, saved(40, 0));
  EXPECT_EQ(bench.pod(1).incarnation, 0) << "the other one is to be lost with it";
  ASSERT_TRUE(bench.pod(0).deleting);
  bench.end(0, 143, told(saved(40, 0)));
  bench.settle();
  EXPECT_EQ(bench.pod(0).incarnation, 1);
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.status().attempt, 1);
  EXPECT_EQ(bench.status().disruptions, 1) << "one loss";
}

TEST(Checkpoint, OfAPodThatNeverEndsHoldsNoOther) {
  JobBench bench;
  bench.run();
  for (const int rank : {1, 0}) bench.pod(rank).deleting = true;
  bench.settle();
  bench.end(1, 143, told(saved(40, 0)));
  bench.settle();
  bench.advance(std::chrono::minutes(1));
  bench.settle();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.pod(0).incarnation, 0);
}

TEST(Checkpoint, MayTakeLongerToSaveThanTheGangMayWaitForANode) {
  JobBench bench;
  bench.run();
  bench.pod(1).deleting = true;
  bench.settle();
  bench.advance(std::chrono::hours(1));
  bench.end(1, 143, told(saved(40, 0)));
  bench.settle();
  EXPECT_TRUE(bench.status().placed()) << bench.status().message;
  EXPECT_EQ(bench.pod(1).incarnation, 1) << "the scheduler has looked";
}

TEST(Checkpoint, IsShownFromTheLastWordsOfAnyPod) {
  JobBench bench;
  bench.run();
  bench.end(1, 143, told(saved(40, 0)));
  bench.settle();
  EXPECT_EQ(bench.status().checkpoint, saved(40, 0));
}

TEST(Checkpoint, OfAWarningDoesNotReplaceTheLaterOneOfTheDrain) {
  JobBench bench(json{{"scheduling", {{"gangTimeout", "30s"}}}});
  bench.run();
  bench.memory.summary = status::read_report(told(saved(12, 0)).dump());
  bench.settle();
  bench.no_node = {0};
  bench.pod(0).deleting = true;
  bench.settle();
  bench.end(0, 143, told(saved(40, 0)));
  for (int i = 0; i < 3; ++i) bench.step();
  EXPECT_EQ(bench.status().checkpoint, saved(40, 0));
  bench.advance(std::chrono::minutes(1));
  bench.step();
  ASSERT_FALSE(bench.status().placed()) << bench.status().message;
  EXPECT_EQ(bench.status().checkpoint, saved(40, 0))
      << "what rank 0 said last before it was asked to end";
}

}  // namespace
}  // namespace paceline::plan
