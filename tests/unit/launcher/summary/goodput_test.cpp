// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/goodput.hpp"

#include <gtest/gtest.h>

#include "common/base/timestamp.hpp"
#include "launcher/summary/model_flops.hpp"

namespace paceline::summary {
namespace {

using nlohmann::json;
using telemetry::Goodput;
using telemetry::Use;

Goodput some() {
  Goodput goodput;
  goodput.seconds = {71.2344, 5.1111, 10.2222, 3.3333, 4.4444, 2.5555, 1.6666, 0.0001};
  goodput.trained = goodput.checkpointed = true;
  goodput.since_checkpoint = 12.5;
  goodput.user_step = 900;
  goodput.step_seconds = 0.125;
  return goodput;
}

TEST(GoodputForm, RatioAndLossesAddUpExactly) {
  const json form = goodput_form(some(), 2);
  double sum = form["ratio"].get<double>() * form["seconds"].get<double>();
  for (const auto& [use, seconds] : form["losses"].items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, form["seconds"].get<double>(), 1e-9);
  EXPECT_EQ(form["losses"].size(), 6U) << "what took no millisecond is left out: " << form.dump();
  EXPECT_FALSE(goodput_form({}, 0).contains("ratio")) << "no step yet";
}

TEST(GoodputForm, IsReadBackByTheNextPod) {
  json form = goodput_form(some(), 2);
  form["asOf"] = "2026-01-01T00:00:00Z";
  const WallTime now = *parse_time("2026-01-01T00:00:40Z");
  const EarlierGoodput earlier = read_earlier(form.dump(), now);
  EXPECT_EQ(earlier.restarts, 2);
  EXPECT_DOUBLE_EQ(earlier.gap, 40);
  for (std::size_t use = 0; use < telemetry::kUses; ++use)
    EXPECT_NEAR(earlier.goodput.seconds[use], some().seconds[use], 1e-3);
  EXPECT_TRUE(earlier.goodput.trained);
  EXPECT_DOUBLE_EQ(earlier.goodput.since_checkpoint, 12.5);
  EXPECT_EQ(earlier.goodput.user_step, 900);
  EXPECT_DOUBLE_EQ(earlier.goodput.step_seconds, 0.125);
  EXPECT_DOUBLE_EQ(read_earlier(form.dump(), *parse_time("2025-01-01T00:00:00Z")).gap, 0)
      << "the clock was set back";
}

TEST(GoodputForm, WhatCannotBeReadIsAbsent) {
  for (const char* text : {"", "[]", "x", "1", R"({"seconds":"many"})", R"({"losses":[1]})",
                           R"({"seconds":-4,"restarts":-1,"userStep":"x","asOf":7})"}) {
    const EarlierGoodput earlier = read_earlier(text, WallTime{});
    EXPECT_EQ(earlier.goodput.wall(), 0) << text;
    EXPECT_EQ(earlier.gap, 0) << text;
    EXPECT_EQ(earlier.restarts, 0) << text;
  }
}

TEST(GoodputForm, OneLineSaysWhereTheTimeWent) {
  EXPECT_EQ(goodput_line({}), "");
  Goodput goodput;
  goodput.trained = true;
  goodput.seconds = {90, 0, 8, 0, 0, 2};
  EXPECT_EQ(goodput_line(goodput), "goodput 90.0 % of 100.0 s (starting 8.0 %, checkpoint 2.0 %)");
  goodput.unknown_losses = 1;
  EXPECT_EQ(goodput_line(goodput),
            "goodput 90.0 % of 100.0 s (starting 8.0 %, checkpoint 2.0 %, lostSteps unknown)");
}

telemetry::JobSummary with_rank_zero() {
  telemetry::JobSummary summary;
  summary.ranks.resize(2);
  summary.ranks[0].rank = 1;
  summary.ranks[0].p50 = 7;
  summary.ranks[1].p50 = 0.5;
  return summary;
}

TEST(ModelFlops, FollowTheBestMeasureOfSpeed) {
  auto summary = with_rank_zero();
  const ModelFlops model{4e12, 1000, 8, 1e14};
  EXPECT_DOUBLE_EQ(flops_per_second(model, summary), 8e12) << "the median step";
  EXPECT_DOUBLE_EQ(*mfu(model, summary), 0.08);
  summary.ranks[1].samples_per_second = 32;
  EXPECT_DOUBLE_EQ(flops_per_second(model, summary), 16e12);
  summary.ranks[1].tokens_per_second = 10'000;
  EXPECT_DOUBLE_EQ(flops_per_second(model, summary), 40e12);
  EXPECT_FALSE(mfu({4e12, 0, 0, 0}, summary).has_value()) << "a device whose peak is unknown";
  EXPECT_EQ(flops_per_second(model, {}), 0);
}

TEST(ModelFlops, AreReadWhateverTheFileSays) {
  EXPECT_EQ(parse_model_flops(R"({"version":1,"model":{"flops":3e12,"samples":8}})"),
            (ModelFlops{3e12, 0, 8, 0}));
  for (const char* text : {"", "{}", R"({"model":1})", R"({"model":{"flops":-1}})",
                           R"({"model":{"flops":"3"}})", R"({"model":{"flops":1e300}})"})
    EXPECT_FALSE(parse_model_flops(text).has_value()) << text;
}

}  // namespace
}  // namespace paceline::summary
