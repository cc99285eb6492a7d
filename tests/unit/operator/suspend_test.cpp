// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "operator/status/phase.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

TEST(Suspend, GivesThePlaceBackAndWaitsForThePods) {
  JobBench bench;
  bench.run();
  bench.pod(0).lingers = true;
  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_FALSE(bench.status().placed());
  EXPECT_TRUE(bench.status().is("QuotaReserved", "Suspended"));
  EXPECT_FALSE(bench.status().is_true("QuotaReserved"));
  EXPECT_EQ(bench.pod_names(), std::vector<std::string>{"j-w-0-0"})
      << "asked to stop, not gone yet";
  EXPECT_TRUE(bench.status().is("Suspended", "Stopping"));
  EXPECT_FALSE(bench.status().is_true("Suspended")) << "a process may still run";
  bench.pods.clear();
  EXPECT_FALSE(bench.settle().queued);
  EXPECT_EQ(bench.status().phase, "Suspended");
  EXPECT_EQ(bench.status().message, "spec.suspend is true");
  EXPECT_FALSE(bench.status().start_time.has_value());
}

TEST(Suspend, ResumesAsANewAttemptWithNewPods) {
  JobBench bench;
  bench.run();
  bench.change_spec({{"suspend", true}});
  bench.settle();
  bench.restart_operator();
  bench.change_spec({{"suspend", false}});
  EXPECT_TRUE(bench.settle().queued);
  EXPECT_EQ(bench.status().phase, "Queued");
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.status().attempt, 1);
  EXPECT_EQ(bench.status().restarts, 0) << "nobody failed";
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-1", "j-w-1-1"}));
}

TEST(Suspend, RolesMayChangeMeanwhile) {
  JobBench bench;
  bench.run();
  bench.pods.erase("j-w-1-0");
  bench.settle();  // incarnations 0 and 1
  bench.change_spec({{"suspend", true}});
  bench.settle();
  nlohmann::json roles = bench.job.job.spec.roles[0].pod_template;
  roles = nlohmann::json::array({{{"name", "w"}, {"replicas", 3}, {"template", roles}}});
  bench.change_spec({{"roles", roles}});
  bench.settle();
  bench.change_spec({{"suspend", false}});
  bench.settle();
  bench.run();
  EXPECT_EQ(bench.pod_names(), (std::vector<std::string>{"j-w-0-2", "j-w-1-2", "j-w-2-2"}))
      << "a name is never used twice";
  EXPECT_EQ(bench.status().pod_counts, (api::PodCounts{3, 3}));
}

TEST(Suspend, WaitsForNoPodThatIsOverAndThatAFinalizerKeeps) {
  JobBench bench;
  bench.run();
  bench.pod(1).unbound = true;  // it never ran
  bench.pod(1).phase = observe::PodPhase::kPending;
  bench.pod(1).trainer = observe::TrainerState::kNone;
  for (auto& [name, pod] : bench.pods) pod.lingers = true;
  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_FALSE(bench.status().is_true("Suspended")) << "one of them may still run";
  bench.end(0, 143);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Suspended");
  bench.change_spec({{"suspend", false}});
  EXPECT_TRUE(bench.settle().queued);
  bench.memory.admission = {"n0", "n1"};
  bench.step();
  bench.memory.admission.reset();
  bench.settle();
  EXPECT_EQ(bench.pod_names(),
            (std::vector<std::string>{"j-w-0-0", "j-w-0-1", "j-w-1-0", "j-w-1-1"}));
}

TEST(Suspend, FromTheStartHasNoPodAndCostsNoAttempt) {
  JobBench bench(nlohmann::json{{"suspend", true}});
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Suspended");
  EXPECT_EQ(bench.created, 0);
  bench.change_spec({{"suspend", false}});
  bench.settle();
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.status().attempt, 0);
}

TEST(Suspend, DuringCreationRemovesTheGatedSet) {
  JobBench bench;
  bench.memory.admission = {"n0", "n1"};
  bench.step();
  EXPECT_EQ(bench.pods.size(), 2U);
  EXPECT_TRUE(bench.pod(0).gated);
  bench.memory.admission.reset();
  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_TRUE(bench.pods.empty());
  EXPECT_EQ(bench.status().phase, "Suspended");
}

TEST(Suspend, AGangThatHasSucceededIsNotStoppedAndNeverRunsAgain) {
  for (const bool preempted : {false, true}) {
    JobBench bench;
    bench.run();
    bench.end(1, 0, {{"version", 1}, {"verdict", "Succeeded"}, {"attempt", 0}, {"restarts", 0}});
    bench.step();  // Completing: rank 0 has not ended yet
    if (preempted) {
      bench.memory.preempted_by = "other";
    } else {
      bench.change_spec({{"suspend", true}});
    }
    bench.step();
    EXPECT_EQ(bench.pods.size(), 2U) << "nothing is stopped";
    bench.end(0, 0, {{"version", 1}, {"verdict", "Succeeded"}, {"attempt", 0}, {"restarts", 0}});
    bench.settle();
    EXPECT_EQ(bench.status().phase, "Succeeded") << api::write_status(bench.status()).dump(1);
  }
}

TEST(Suspend, AGangThatSucceedsWhileItStopsHasSucceeded) {
  JobBench bench;
  bench.run();
  for (auto& [name, pod] : bench.pods) pod.lingers = true;
  bench.change_spec({{"suspend", true}});
  bench.step();
  bench.end_all(0, {{"version", 1}, {"verdict", "Succeeded"}, {"attempt", 0}, {"restarts", 0}});
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Succeeded") << api::write_status(bench.status()).dump(1);
}

TEST(Suspend, AnEditThatTheOperatorMissedStartsTheGangAgain) {
  JobBench bench;
  bench.run();
  const std::string before = bench.status().placed_spec;
  EXPECT_EQ(before.size(), 16U);
  // suspended, edited and resumed while no operator ran
  bench.change_spec({{"roles", nlohmann::json::parse(R"([{"name": "w", "replicas": 2, "template": {
      "spec": {"containers": [{"name": "trainer", "image": "new", "command": ["train"]}]}}}])")}});
  bench.restart_operator();
  bench.step();
  EXPECT_FALSE(bench.status().placed());
  EXPECT_TRUE(bench.status().is(status::kPlaced, "SpecChanged"));
  bench.settle();
  EXPECT_TRUE(bench.pods.empty());
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_NE(bench.status().placed_spec, before);
}

TEST(Suspend, AnUpgradeOfTheOperatorIsNoEdit) {
  JobBench bench(nlohmann::json{{"acceleration", {{"loader", "Disabled"}}}});
  bench.run();
  // as the operator before wrote it, which left acceleration out
  bench.job.status.placed_spec = "34a1a66751d71d97";
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
  EXPECT_EQ(bench.status().placed_spec, "34a1a66751d71d97") << "that operator may come back";
}

TEST(Suspend, AnotherOrderOfTheContainersIsNoEdit) {
  const auto roles = [](const char* first, const char* second) {
    nlohmann::json list = nlohmann::json::parse(R"([{"name": "w", "replicas": 2, "template": {
      "spec": {"containers": [{"image": "i", "command": ["train"]},
                              {"image": "i", "command": ["train"]}]}}}])");
    list[0]["template"]["spec"]["containers"][0]["name"] = first;
    list[0]["template"]["spec"]["containers"][1]["name"] = second;
    return nlohmann::json{{"roles", list}};
  };
  JobBench bench(roles("trainer", "logs"));
  bench.run();
  bench.change_spec(roles("logs", "trainer"));
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
}

TEST(Suspend, WhateverTheGangIsMadeWithCountsAsAnEdit) {
  const char* edits[] = {
      R"({"acceleration": {"mode": "Disabled"}})",
      R"({"acceleration": {"numerics": "Bitwise"}})",
      R"({"acceleration": {"optimizer": "Disabled"}})",
      R"({"topology": {"required": "Leaf"}})",
      R"({"scheduling": {"podsPerNode": 1}})",
      R"({"successPolicy": "RankZero"})",
  };
  for (const char* edit : edits) {
    JobBench bench;
    bench.run();
    bench.change_spec(nlohmann::json::parse(edit));
    bench.step();
    EXPECT_TRUE(bench.status().is(status::kPlaced, "SpecChanged")) << edit;
  }
}

TEST(Suspend, AnEditOfALimitThatMayChangeWhileItRunsStopsNothing) {
  JobBench bench;
  bench.run();
  bench.change_spec({{"activeDeadline", "9h"},
                     {"ttlAfterFinished", "1h"},
                     {"topology", {{"preferred", "Leaf"}, {"preferredTimeout", "1h"}}}});
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Running");
}

}  // namespace
}  // namespace paceline::plan
