// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/recent_steps.hpp"

#include <gtest/gtest.h>

#include "common/telemetry/collector.hpp"
#include "testing/ring_fixture.hpp"

namespace paceline::telemetry {
namespace {

using test::ring_offer;
using test::step;
using test::TestRing;

TEST(RecentSteps, AreTheNewestWithTheirAmendments) {
  TestRing ring;
  for (std::uint64_t number = 1; number <= 5; ++number) ring.publish(step(number));
  paceline_step_record amendment = step(4);
  amendment.kind = PACELINE_KIND_AMENDMENT;
  amendment.valid = PACELINE_VALID_COMM_OPS;
  amendment.comm_ops = 7;
  ring.publish(amendment);
  paceline_step_record final = step(6);
  final.flags |= PACELINE_FLAG_FINAL;
  ring.publish(final);
  const auto view = RingView::open(ring.fd());
  ASSERT_TRUE(view);
  const auto steps = recent_steps(*view, 3);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps.front().step, 3U);
  EXPECT_EQ(steps[1].comm_ops, 7U);
  EXPECT_NE(steps[1].valid & PACELINE_VALID_COMM_OPS, 0U);
  EXPECT_EQ(steps.back().step, 5U) << "the final record is no step";
}

TEST(RecentSteps, OfAStrangeRingAreLeftOut) {
  TestRing ring;
  ring.publish(step(1));
  paceline_step_record strange = step(2);
  strange.wall_ns = ~0ULL;
  ring.publish(strange);
  ring.header().write_index = 1ULL << 60U;
  const auto view = RingView::open(ring.fd());
  ASSERT_TRUE(view);
  EXPECT_TRUE(recent_steps(*view, 10).empty());
  ring.header().write_index = 2;
  EXPECT_EQ(recent_steps(*view, 10).size(), 1U);
}

TEST(RecentSteps, OfTheCollectorNameRanksWithoutARing) {
  ManualClock clock;
  Collector collector({"ns", "job", "worker", "node-a"}, clock);
  collector.begin_attempt(3, 1, 2, 2);
  TestRing ring;
  ring.publish(step(1));
  const auto key = collector.add(ring_offer(3, 3), ring.fd());
  ASSERT_TRUE(key);
  const auto recent = collector.recent(5);
  ASSERT_EQ(recent.size(), 2U);
  EXPECT_EQ(recent[0].rank, 2);
  EXPECT_FALSE(recent[0].live);
  EXPECT_EQ(recent[1].rank, 3);
  EXPECT_EQ(recent[1].attempt, 3U);
  EXPECT_TRUE(recent[1].live);
  EXPECT_EQ(recent[1].steps.size(), 1U);
  collector.poll();
  EXPECT_EQ(collector.summaries().front().steps, 1U) << "the collector's own reader goes on";

  collector.remove(*key);
  collector.begin_attempt(4, 1, 2, 2);
  const auto ended = collector.recent(5);
  EXPECT_FALSE(ended[1].live);
  EXPECT_EQ(ended[1].steps.size(), 1U) << "what it did last";
  TestRing next;
  ASSERT_TRUE(collector.add(ring_offer(3, 4), next.fd()));
  EXPECT_TRUE(collector.recent(5)[1].steps.empty()) << "it has started again";
}

TEST(RecentSteps, AreNotKeptWhereNobodyAsksNorOfARankThatWasLeft) {
  ManualClock clock;
  const auto after = [&](std::size_t window, bool left) {
    Collector collector({"ns", "job", "worker", "node-a"}, clock, {.window = window});
    collector.begin_attempt(0, 0, 0, 1);
    TestRing ring;
    ring.publish(step(1));
    collector.remove(*collector.add(ring_offer(0, 0), ring.fd()));
    if (left) collector.leave(0);
    return collector.recent(5).at(0).steps.size();
  };
  EXPECT_EQ(after(RankStats::kWindow, false), 1U);
  EXPECT_EQ(after(0, false), 0U);
  EXPECT_EQ(after(RankStats::kWindow, true), 0U);
}

}  // namespace
}  // namespace paceline::telemetry
