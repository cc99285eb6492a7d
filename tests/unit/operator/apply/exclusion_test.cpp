// SPDX-License-Identifier: Apache-2.0
// The end of an exclusion brings no event: a job that waits for the node looks by itself.
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

void kill_trainer(ControllerBench& bench, const std::string& pod) {
  const json ended = {{"terminated", {{"exitCode", 77}, {"reason", "Error"}}}};
  bench.cluster().poke(
      kube::kPods, "default", pod,
      json{{"status",
            {{"phase", "Failed"},
             {"containerStatuses", json::array({{{"name", "trainer"}, {"state", ended}}})}}}}
          .dump());
  bench.settle();
}

void let_the_exclusion_end(ControllerBench& bench) {
  for (int i = 0; i < 45; ++i) bench.advance(std::chrono::seconds(15));
}

json role_on_all_of_a_node(const char* name, const char* kind) {
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"requests", {{"cpu", 4}}}}}};
  return {{"name", name},
          {"kind", kind},
          {"replicas", 1},
          {"template", {{"spec", {{"containers", json::array({container})}}}}}};
}

json leaves_nodes(json roles) {
  const json rule = {{"exitCodes", {"77"}}, {"action", "ReplaceNode"}};
  return {{"failurePolicy", {{"rules", json::array({rule})}}}, {"roles", std::move(roles)}};
}

TEST(AfterAnExclusion, AQueuedJobStarts) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j", leaves_nodes(json::array({role_on_all_of_a_node("w", "Worker")})));
  bench.settle();
  kill_trainer(bench, "j-w-0-0");
  bench.advance(std::chrono::minutes(6));
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Queued") << bench.job("j")["status"].dump(1);
  let_the_exclusion_end(bench);
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
}

TEST(AfterAnExclusion, AReplicaThatFailsAloneIsReplaced) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_node("n1", 4);
  bench.add_job("j", leaves_nodes(json::array({role_on_all_of_a_node("ps", "ParameterServer"),
                                               role_on_all_of_a_node("w", "Worker")})));
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  kill_trainer(bench, "j-w-0-0");
  bench.advance(std::chrono::minutes(1));
  ASSERT_EQ(bench.condition("j", "Replacing")["reason"], "WaitingForNode");
  let_the_exclusion_end(bench);
  EXPECT_EQ(bench.condition("j", "Replacing")["status"], "False")
      << bench.job("j")["status"].dump(1);
}

}  // namespace
}  // namespace paceline::apply
