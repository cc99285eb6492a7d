// SPDX-License-Identifier: Apache-2.0
// How `paceline run --compare` judges pairs of runs.
#include "cli/run/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace paceline::cli {
namespace {

JobView after(std::uint64_t steps, double seconds) {
  JobView view;
  view.ranks.emplace_back();
  view.ranks[0].settled = {steps, seconds};
  return view;
}

TEST(Compare, AFewStepsAreNoMeasurement) {
  EXPECT_FALSE(seconds_a_step(JobView{})) << "a report without ranks";
  EXPECT_FALSE(seconds_a_step(after(7, 0.7)));
  EXPECT_FALSE(seconds_a_step(after(100, 0)));
  ASSERT_TRUE(seconds_a_step(after(100, 10.0)));
  EXPECT_NEAR(*seconds_a_step(after(100, 10.0)), 0.1, 1e-12);
}

TEST(Compare, NeighboursSwapTheirOrder) {
  EXPECT_EQ(order_of_runs(3), (std::vector<bool>{false, true, true, false, false, true}));
}

// By hand: logarithms 0.1, 0.2, 0.3 have mean 0.2 and standard error 0.1 / sqrt(3); Student's
// quantile of 97.5 % with two degrees of freedom is 4.302653 (any table).
TEST(Compare, TheIntervalIsStudents) {
  const Gain gain = gain_of({{std::exp(0.1), 1.0}, {std::exp(0.2), 1.0}, {2 * std::exp(0.3), 2.0}});
  const double reach = 4.302653 * 0.1 / std::sqrt(3.0);
  EXPECT_NEAR(gain.mean, std::expm1(0.2), 1e-9);
  EXPECT_NEAR(gain.low, std::expm1(0.2 - reach), 1e-6);
  EXPECT_NEAR(gain.high, std::expm1(0.2 + reach), 1e-6);
}

TEST(Compare, SaysGainLossOrNeither) {
  const auto gains = comparison_text({{0.120, 0.100}, {0.121, 0.100}, {0.119, 0.100}});
  EXPECT_NE(gains.find("acceleration gains +20.0 %"), std::string::npos) << gains;
  EXPECT_NE(gains.find("120.000 ms"), std::string::npos) << gains;
  const auto loses = comparison_text({{0.090, 0.100}, {0.091, 0.100}, {0.089, 0.100}});
  EXPECT_NE(loses.find("acceleration LOSES: -10.0 %"), std::string::npos) << loses;
  const auto neither = comparison_text({{0.090, 0.100}, {0.110, 0.100}});
  EXPECT_NE(neither.find("no difference can be told"), std::string::npos) << neither;
}

}  // namespace
}  // namespace paceline::cli
