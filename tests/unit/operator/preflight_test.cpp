// SPDX-License-Identifier: Apache-2.0
// A pod that lacks what the job requires, before the first step: the gang moves to other nodes, and
// a job that cannot move ends.
#include <gtest/gtest.h>

#include "operator/plan/policies/policies.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::minutes;
using Names = std::vector<std::string>;

const json kLacking = {
    {"version", 1},
    {"verdict", "PreflightFailed"},
    {"attempt", 0},
    {"restarts", 0},
    {"message", "pod j-w-1-0: memlock fails: locked memory is limited to 64 KiB"}};

json requires_gpu_direct() {
  const json trainer = {{"name", "trainer"},
                        {"image", "i"},
                        {"command", {"train"}},
                        {"resources", {{"limits", {{"nvidia.com/gpu", 1}}}}}};
  const json role = {{"name", "w"},
                     {"replicas", 2},
                     {"template", {{"spec", {{"containers", json::array({trainer})}}}}}};
  return {{"roles", json::array({role})}, {"network", {{"gpuDirect", "Required"}}}};
}

TEST(Preflight, TheGangIsReleasedAndPlacedAgainWithoutTheNode) {
  JobBench bench(requires_gpu_direct());
  bench.run();
  bench.end(1, 67, kLacking);
  const Plan plan = bench.settle();
  EXPECT_TRUE(plan.queued);
  EXPECT_EQ(bench.status().phase, "Queued");
  EXPECT_EQ(bench.status().reason, "PreflightFailed");
  EXPECT_NE(bench.status().message.find("locked memory is limited to 64 KiB"), std::string::npos);
  EXPECT_TRUE(bench.status().is("PreflightPassed", "PreflightFailed"));
  EXPECT_EQ(bench.pod_names(), Names{"j-w-1-0"}) << "the one that failed keeps its log";
  EXPECT_EQ(excluded_nodes(bench.status(), bench.now), Names{"n1"});
  EXPECT_EQ(bench.status().excluded_nodes[0].message, kLacking["message"]);

  bench.restart_operator();
  EXPECT_EQ(excluded_nodes(bench.status(), bench.now), Names{"n1"}) << "on record";
  bench.memory.admission = Names{"n0", "n2"};
  bench.settle();
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.status().restarts, 0) << "no rank has run";
  EXPECT_EQ(bench.status().attempt, 1);
}

TEST(Preflight, EveryPodThatFailsNamesItsNodeAtOnce) {
  JobBench bench(requires_gpu_direct());
  bench.run();
  bench.end_all(67, kLacking);
  bench.settle();
  EXPECT_EQ(excluded_nodes(bench.status(), bench.now), (Names{"n0", "n1"}));
}

TEST(Preflight, AnExclusionEndsByItselfAndBySuspension) {
  JobBench bench(requires_gpu_direct());
  bench.run();
  bench.end(1, 67, kLacking);
  bench.settle();
  bench.advance(minutes(9));
  EXPECT_EQ(excluded_nodes(bench.status(), bench.now), Names{"n1"});
  EXPECT_TRUE(excluded_nodes(bench.status(), bench.now - std::chrono::hours(24)).empty())
      << "the clock was set back";
  bench.advance(minutes(1));
  EXPECT_TRUE(excluded_nodes(bench.status(), bench.now).empty());

  bench.now -= minutes(10);
  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_TRUE(bench.status().excluded_nodes.empty());
}

TEST(Preflight, WaitingLooksAgainWithoutAnEvent) {
  JobBench bench(requires_gpu_direct());
  bench.memory.waiting = Waiting{"GpuDirectNotReady", "spec.network.gpuDirect is Required: …"};
  const Plan plan = bench.settle();
  EXPECT_TRUE(plan.look_again);
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(15));
}

TEST(Preflight, WhatEveryNodeLacksEndsTheJob) {
  JobBench bench(requires_gpu_direct());
  for (int i = 0; i < 4; ++i) {
    bench.run();
    bench.end(1, 67, kLacking);
    bench.settle();
    ASSERT_EQ(bench.status().phase, "Queued") << i;
    bench.advance(minutes(1));
    // as if each try were on another node
    bench.job.status.excluded_nodes.back().name = "m" + std::to_string(i);
  }
  bench.run();
  bench.end(1, 67, kLacking);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Failed");
  EXPECT_EQ(bench.status().reason, "PreflightFailed");
  EXPECT_NE(
      bench.status().message.find("placed 5 times, and the preflight failed on m0, m1, m2, m3, n1"),
      std::string::npos)
      << bench.status().message;
  EXPECT_EQ(bench.status().culprit["class"], "PreflightFailed");
}

TEST(Preflight, NodesThatFailureRulesExcludedCountForNoTries) {
  JobBench bench(requires_gpu_direct());
  bench.run();
  bench.memory.summary.emplace();
  bench.memory.summary->phase = "Running";
  bench.settle();
  ASSERT_TRUE(bench.status().is_true("PreflightPassed"));
  for (int i = 0; i < 4; ++i) {
    bench.advance(minutes(1));
    bench.job.status.excluded_nodes.push_back(
        {"m" + std::to_string(i), "an Xid", bench.now, bench.now + minutes(10), 1});
  }
  bench.advance(minutes(1));
  bench.memory.summary.reset();
  bench.end(1, 67, kLacking);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Queued") << bench.status().message;
  EXPECT_EQ(excluded_nodes(bench.status(), bench.now).size(), 5U);
}

TEST(Preflight, PassesWhenRanksRun) {
  JobBench bench(requires_gpu_direct());
  bench.run();
  EXPECT_EQ(bench.status().find("PreflightPassed"), nullptr)
      << "pods that run have proved nothing yet";
  bench.memory.summary.emplace();
  bench.memory.summary->phase = "Running";
  bench.settle();
  EXPECT_TRUE(bench.status().is_true("PreflightPassed"));
  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_FALSE(bench.status().is_true("PreflightPassed")) << "of another placement";

  JobBench easy;
  easy.run();
  easy.memory.summary.emplace();
  easy.memory.summary->phase = "Running";
  easy.settle();
  EXPECT_EQ(easy.status().find("PreflightPassed"), nullptr) << "nothing was required";
}

}  // namespace
}  // namespace paceline::plan
