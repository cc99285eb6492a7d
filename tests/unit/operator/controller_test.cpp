// SPDX-License-Identifier: Apache-2.0
// What only shows when plan, scheduler and writes come together.
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using std::chrono::minutes;

TEST(Controller, ASuspendedJobGivesItsQuotaAndItsPlaceToTheNext) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "3"}}}}}});
  bench.settle();
  bench.add_job("first");
  bench.settle();
  bench.add_job("second");
  bench.settle();
  ASSERT_EQ(bench.job("first")["status"]["phase"], "Running");
  ASSERT_EQ(bench.job("second")["status"]["reason"], "QuotaExceeded") << bench.job("second")["status"].dump(1);
  EXPECT_EQ(bench.condition("first", "QuotaReserved")["status"], "True");

  bench.patch_job("first", {{"spec", {{"suspend", true}}}});
  bench.settle();
  EXPECT_EQ(bench.job("first")["status"]["phase"], "Suspended");
  EXPECT_EQ(bench.condition("first", "QuotaReserved")["status"], "False");
  EXPECT_TRUE(bench.pods("first").empty());
  EXPECT_EQ(bench.job("second")["status"]["phase"], "Running") << bench.job("second")["status"].dump(1);

  bench.patch_job("first", {{"spec", {{"suspend", false}}}});
  bench.settle();
  EXPECT_EQ(bench.job("first")["status"]["phase"], "Queued");
  bench.finish("second");
  bench.settle();
  EXPECT_EQ(bench.job("first")["status"]["phase"], "Running") << bench.job("first")["status"].dump(1);
  EXPECT_EQ(bench.job("first")["status"]["attempt"], 1);
}

TEST(Controller, AFinishedJobGoesWhenItsTimeHasComeThoughTheOperatorIsAnother) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"ttlAfterFinished", "10m"}, {"cleanPodPolicy", "None"}});
  bench.settle();
  bench.finish("j");
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Succeeded");
  bench.restart_operator();
  bench.advance(minutes(9));
  EXPECT_FALSE(bench.job("j").is_null());
  EXPECT_EQ(bench.pods("j").size(), 2U);
  bench.advance(minutes(1));
  EXPECT_TRUE(bench.job("j").is_null());
  EXPECT_TRUE(bench.pods("j").empty());
}

TEST(Controller, TheDeadlineComesByItself) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"activeDeadline", "10m"}});
  bench.settle();
  bench.restart_operator();
  bench.advance(minutes(9));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  bench.advance(minutes(1));
  EXPECT_EQ(bench.job("j")["status"]["reason"], "DeadlineExceeded");
  EXPECT_TRUE(bench.pods("j").empty());
}

}  // namespace
}  // namespace paceline::apply
