// SPDX-License-Identifier: Apache-2.0
// What an upgrade of the operator does to gangs that an earlier operator placed.
#include <gtest/gtest.h>

#include "common/contract/injection.hpp"
#include "launcher/rendezvous/message.hpp"
#include "tests/unit/operator/controller_bench.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

/// The operator that placed the gang spoke another contract with launchers.
void upgrade(JobBench& bench) {
  bench.job.status.contract = 1;
  bench.restart_operator();
}

TEST(Upgrade, TheContractIsOnRecord) {
  JobBench bench;
  bench.run();
  EXPECT_EQ(bench.status().contract, contract::kRuntimeContract);
  EXPECT_EQ(bench.status().runtime_image, "runtime:1");
  EXPECT_GE(contract::kRuntimeContract, rendezvous::kProtocol)
      << "launchers refuse another protocol, so a new one needs a new contract";
}

TEST(Upgrade, AGangThatLosesNothingRunsOn) {
  JobBench bench;
  bench.run();
  upgrade(bench);
  EXPECT_FALSE(bench.settle().acts());
  EXPECT_EQ(bench.status().phase, "Running");
}

TEST(Upgrade, AGangOfTheSameContractKeepsItsImageInReplacements) {
  JobBench bench;
  bench.run();
  bench.restart_operator();
  bench.end(1, 143);
  bench.settle();
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.pod(0).incarnation, 0);
  EXPECT_EQ(bench.status().runtime_image, "runtime:1");
}

TEST(Upgrade, AGangOfAnotherContractStartsAgainInsteadOfGettingAReplacement) {
  JobBench bench;
  bench.run();
  upgrade(bench);
  bench.end(1, 143);
  bench.settle();
  EXPECT_EQ(bench.status().phase, "Queued");
  EXPECT_EQ(bench.status().reason, "RuntimeChanged");
  EXPECT_EQ(bench.status().restarts, 0) << "eviction costs no restart";
  bench.run();
  EXPECT_EQ(bench.status().phase, "Running") << bench.status().message;
  EXPECT_EQ(bench.status().contract, contract::kRuntimeContract);
  EXPECT_EQ(bench.pod(0).incarnation, 1);
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.status().attempt, 1) << "one loss is one attempt";
}

TEST(Upgrade, AKilledPodStillCostsARestart) {
  JobBench bench(nlohmann::json{{"failurePolicy", {{"maxRestarts", 1}}}});
  bench.run();
  upgrade(bench);
  bench.end(1, 137);
  bench.settle();
  EXPECT_EQ(bench.status().reason, "RuntimeChanged");
  EXPECT_EQ(bench.status().restarts, 1);
}

TEST(Upgrade, AReplacementOnRecordIsNotCreated) {
  JobBench bench;
  bench.run();
  bench.end(1, 143);
  while (bench.status().roles[0].incarnations[1] == 0) bench.step();
  bench.pods.erase("j-w-1-1");  // the operator ended before it created this pod
  upgrade(bench);
  bench.settle();
  EXPECT_EQ(bench.status().reason, "RuntimeChanged");
  EXPECT_TRUE(bench.pods.empty());
}

TEST(Upgrade, AFieldOfANewerSchemaStopsNoGangThatRuns) {
  apply::ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j");
  bench.settle();
  const nlohmann::json newer = {{"spec", {{"network", {{"newer", "Default"}}}}}};
  bench.patch_job("j", newer);
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_EQ(bench.pods("j").size(), 2U);
  bench.add_job("k");
  bench.patch_job("k", newer);
  bench.settle();
  EXPECT_EQ(bench.job("k")["status"]["reason"], "InvalidSpec") << "it does not run yet";
}

TEST(Upgrade, AHalfCreatedGangIsTakenBack) {
  for (const bool gated : {true, false}) {
    JobBench bench;
    bench.gated = gated;
    bench.memory.admission = {"n0", "n1"};
    bench.step();
    bench.memory.admission.reset();
    bench.pods.erase("j-w-1-0");
    upgrade(bench);
    bench.settle();
    EXPECT_TRUE(bench.pods.empty());
    EXPECT_EQ(bench.status().reason, "RuntimeChanged");
  }
}

}  // namespace
}  // namespace paceline::plan
