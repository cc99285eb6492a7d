// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/steps_to_trace.hpp"

#include <gtest/gtest.h>

namespace paceline::traces {
namespace {

using Seconds = std::chrono::duration<double>;

TEST(StepsToTrace, BeginBeyondTheNewestStepOfAllRanks) {
  const auto plan = plan_trace({{100, 2.0}, {103, 2.0}, {99, 4.0}}, 5, Seconds(0.3));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->start_step, 103U + 2 + 1);
  EXPECT_DOUBLE_EQ(plan->seconds, (3 + 5) * 4.0);
}

TEST(StepsToTrace, QuickStepsGiveEveryRankTheTimeToHear) {
  const auto plan = plan_trace({{1000, 0.01}}, 5, Seconds(0.3));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->start_step, 1000U + 2 + 30);
}

TEST(StepsToTrace, APaceThatIsNotKnownYetCountsAsSlow) {
  const auto plan = plan_trace({{1, 0}, {0, 0}}, 5, Seconds(0.3));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->start_step, 3U);
}

TEST(StepsToTrace, NoRankThatTrainsMeansNoTrace) {
  EXPECT_FALSE(plan_trace({}, 5, Seconds(0.3)));
  EXPECT_FALSE(plan_trace({{0, 0}, {0, 0}}, 5, Seconds(0.3)));
}

}  // namespace
}  // namespace paceline::traces
