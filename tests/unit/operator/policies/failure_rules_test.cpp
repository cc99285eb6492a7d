// SPDX-License-Identifier: Apache-2.0
// failurePolicy.rules about pods, the budget of disruptions, and nodes that the job avoids.
#include <gtest/gtest.h>

#include "operator/plan/policies/policies.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using Names = std::vector<std::string>;

json policy(json fields) { return {{"failurePolicy", std::move(fields)}}; }

json rules(json list, int max_restarts = 3) {
  return policy({{"maxRestarts", max_restarts}, {"rules", std::move(list)}});
}

void evict(JobBench& bench, int rank, const std::string& reason = "EvictionByEvictionAPI") {
  bench.end(rank, 143, {{"version", 1}, {"verdict", "Terminated"}});
  bench.pod(rank).conditions = {{"DisruptionTarget", "True", reason}};
}

struct KilledPod {
  const char* name;
  json rule;
  int exit_code;
  std::string reason;
  std::string phase;
  int restarts;
  int disruptions;
};

TEST(FailureRules, DecideAboutAPodThatWasKilled) {
  const json oom = {{"reasons", {"OOMKilled"}}};
  const auto with = [&](const char* action) {
    json rule = oom;
    rule["action"] = action;
    return rule;
  };
  const KilledPod cases[] = {
      {"no rule matches", with("FailJob"), 137, "Error", "Running", 1, 0},
      {"the job fails", with("FailJob"), 137, "OOMKilled", "Failed", 0, 0},
      {"a restart", with("RestartGang"), 137, "OOMKilled", "Running", 1, 0},
      {"nothing but a disruption", with("Ignore"), 137, "OOMKilled", "Running", 0, 1},
      {"another node", with("ReplaceNode"), 137, "OOMKilled", "Running", 0, 1},
      {"by the exit code",
       {{"exitCodes", {"130-140"}}, {"action", "FailJob"}},
       137,
       "Error",
       "Failed",
       0,
       0},
      {"by the signal",
       {{"signals", {"SIGKILL"}}, {"action", "Ignore"}},
       137,
       "Error",
       "Running",
       0,
       1},
  };
  for (const KilledPod& c : cases) {
    JobBench bench(rules(json::array({c.rule})));
    bench.run();
    bench.end(1, c.exit_code);
    bench.pod(1).reason = c.reason;
    bench.settle();
    if (c.phase == "Running") bench.run();
    EXPECT_EQ(bench.status().phase, c.phase) << c.name;
    EXPECT_EQ(bench.status().restarts, c.restarts) << c.name;
    EXPECT_EQ(bench.status().disruptions, c.disruptions) << c.name;
  }
}

TEST(FailureRules, AKillAfterAPodWasToldToStopIsNotTheJobsFailure) {
  JobBench bench(
      rules({{{"reasons", {"OOMKilled"}}, {"exitCodes", {"137"}}, {"action", "FailJob"}}}));
  bench.run();
  bench.pod(1).deleting = true;
  bench.end(1, 137);
  bench.pod(1).reason = "OOMKilled";
  bench.settle();
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
  EXPECT_EQ(bench.status().disruptions, 1);
}

TEST(FailureRules, StatusSaysWhichRuleDecided) {
  JobBench bench(rules({{{"name", "memory"}, {"reasons", {"OOMKilled"}}, {"action", "FailJob"}}}));
  bench.run();
  bench.end(1, 137);
  bench.pod(1).reason = "OOMKilled";
  bench.settle();
  EXPECT_EQ(bench.status().reason, "FailureRule");
  EXPECT_EQ(bench.status().message,
            "pod j-w-1-0 ended with exit code 137 (OOMKilled): failurePolicy.rules[0] (memory) "
            "says FailJob");
  EXPECT_EQ(bench.status().culprit["rule"], "failurePolicy.rules[0] (memory) says FailJob");
}

TEST(FailureRules, ADisruptedPodsConditionsCount) {
  JobBench bench(rules(
      {{{"podConditions", {{{"type", "DisruptionTarget"}, {"reason", "PreemptionByScheduler"}}}},
        {"action", "FailJob"}}}));
  bench.run();
  evict(bench, 1);
  bench.settle();
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  evict(bench, 1, "PreemptionByScheduler");
  bench.settle();
  EXPECT_EQ(bench.status().reason, "FailureRule");
}

TEST(FailureRules, ANodesConditionsCount) {
  JobBench bench(
      rules({{{"nodeConditions", {{{"type", "GpuFault"}}}}, {"action", "ReplaceNode"}}}));
  bench.run();
  auto node = std::make_shared<observe::NodeView>();
  node->ready = true;
  node->conditions = {{"GpuFault", "True", "Xid79"}};
  bench.nodes["n1"] = node;
  bench.end(1, 1);
  bench.settle();
  EXPECT_EQ(bench.status().nodes(), (Names{"n0", "spare"}));
  EXPECT_EQ(bench.status().restarts, 0);
}

TEST(Disruptions, CostNoRestart) {
  JobBench bench(policy({{"maxRestarts", 0}}));
  for (int i = 1; i <= 5; ++i) {
    bench.run();
    evict(bench, 1);
    bench.settle();
    bench.advance(std::chrono::seconds(30));
    bench.settle();
    EXPECT_EQ(bench.status().disruptions, i);
  }
  EXPECT_EQ(bench.status().restarts, 0);
  EXPECT_FALSE(bench.status().finished());
}

TEST(Disruptions, HaveABudgetOfTheirOwn) {
  JobBench bench(policy({{"maxDisruptions", 1}}));
  bench.run();
  evict(bench, 1);
  bench.settle();
  bench.run();
  ASSERT_EQ(bench.status().phase, "Running");
  evict(bench, 0);
  bench.settle();
  EXPECT_EQ(bench.status().reason, "DisruptionsExhausted");
  EXPECT_NE(bench.status().message.find("failurePolicy.maxDisruptions (1) is spent"),
            std::string::npos)
      << bench.status().message;
}

TEST(Disruptions, APreemptionByAnotherJobIsOne) {
  JobBench bench(policy({{"maxDisruptions", 1}}));
  for (const char* phase : {"Queued", "Failed"}) {
    bench.run();
    bench.memory.preempted_by = "urgent";
    bench.settle();
    bench.memory.preempted_by.clear();
    EXPECT_EQ(bench.status().phase, phase);
  }
  EXPECT_EQ(bench.status().reason, "DisruptionsExhausted");
}

json sent_away() {
  return {{"version", 1}, {"verdict", "ReplaceNode"}, {"message", "rank 1 on j-w-1-0 hung"}};
}

TEST(Restarts, AGangThatIsQueuedAgainForWantOfANodeHasSpentItsRestart) {
  JobBench bench(policy({{"maxRestarts", 1}}));
  bench.run();
  bench.no_node = {1};
  bench.end(1, 1);
  for (int i = 0; i < 3; ++i) bench.step();
  ASSERT_EQ(bench.status().reason, "WaitingForNode");
  EXPECT_EQ(bench.status().restarts, 0);
  bench.advance(std::chrono::hours(1));
  bench.settle();
  ASSERT_TRUE(bench.status().is(status::kPlaced, "NoReplacementNode"));
  EXPECT_EQ(bench.status().restarts, 1);
  bench.no_node.clear();
  bench.run();
  bench.end(1, 1);
  bench.settle();
  EXPECT_EQ(bench.status().reason, "RestartsExhausted");
}

TEST(Exclusion, AReplicaThatItsLauncherSendsAwayGetsAnotherNode) {
  JobBench bench(policy({{"maxRestarts", 0}}));
  bench.run();
  bench.end(1, 68, sent_away());
  bench.settle();
  EXPECT_EQ(bench.status().nodes(), (Names{"n0", "spare"}));
  EXPECT_EQ(excluded_nodes(bench.status(), bench.now), Names{"n1"});
  EXPECT_EQ(bench.status().disruptions, 1);
}

TEST(Exclusion, LastsTwiceAsLongEachTimeAndIsForgottenAfterAsLongATimeWithoutFailure) {
  // When the node fails again after its exclusion, and for how long it is excluded then.
  const std::pair<minutes, minutes> course[] = {{minutes(0), minutes(10)},
                                                {minutes(5), minutes(20)},
                                                {minutes(19), minutes(40)},
                                                {minutes(41), minutes(10)}};
  JobBench bench;
  for (const auto& [after, length] : course) {
    bench.advance(after);
    bench.run();
    bench.end(1, 68, sent_away());
    bench.settle();
    bench.advance(length - std::chrono::seconds(1));
    EXPECT_EQ(excluded_nodes(bench.status(), bench.now), Names{"n1"}) << length;
    bench.advance(std::chrono::seconds(1));
    EXPECT_TRUE(excluded_nodes(bench.status(), bench.now).empty()) << length;
    bench.memory.preempted_by = "urgent";  // so that the node is chosen again
    bench.settle();
    bench.memory.preempted_by.clear();
  }
}

}  // namespace
}  // namespace paceline::plan
