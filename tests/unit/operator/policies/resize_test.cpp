// SPDX-License-Identifier: Apache-2.0
// What an elastic job does when its size changes: by an edit, by a loss, and when there is room
// again.
#include <gtest/gtest.h>

#include "operator/plan/policies/policies.hpp"
#include "operator/render/names.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

/// A job with one elastic role, which wants `replicas` of one to eight.
json elastic_spec(int replicas, int fewest = 1) {
  return {
      {"elastic",
       {{"role", "w"}, {"replicas", replicas}, {"minReplicas", fewest}, {"maxReplicas", 8}}},
      {"roles", json::array({{{"name", "w"},
                              {"template",
                               {{"spec",
                                 {{"containers", json::array({{{"name", "trainer"},
                                                               {"image", "i"},
                                                               {"command", {"train"}}}})}}}}}}})}};
}

void want(JobBench& bench, int replicas) {
  bench.change_spec({{"elastic", {{"replicas", replicas}}}});
}

void start_all(JobBench& bench) {
  for (auto& [name, pod] : bench.pods) {
    pod.phase = observe::PodPhase::kRunning;
    pod.trainer = observe::TrainerState::kRunning;
  }
  bench.settle();
}

/// The pod's node has gone, with the pod.
void lose_node(JobBench& bench, int rank) {
  const int incarnation = bench.pod(rank).incarnation;
  const auto replica = api::replicas_of(bench.job.job.spec)[static_cast<std::size_t>(rank)];
  bench.pods.erase(render::pod_name(bench.job.job, replica, incarnation));
}

/// For a job that waits for a node: it looks again and again.
void steps(JobBench& bench) {
  for (int i = 0; i < 6; ++i) bench.step();
}

TEST(Resize, AnEditShrinksTheGang) {
  JobBench bench(elastic_spec(4));
  bench.run();
  EXPECT_EQ(bench.status().elastic->replicas, 4);
  EXPECT_EQ(bench.status().elastic->selector, "paceline.dev/job-uid=job,paceline.dev/role=w");
  want(bench, 2);
  const Plan plan = bench.step();
  EXPECT_EQ(plan.deletes.size(), 4U) << "all of them save, and come back with the new world size";
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_EQ(bench.status().phase, "Restarting");
  EXPECT_EQ(bench.status().reason, "Resizing");
  EXPECT_EQ(bench.status().message, "resized from 4 to 2 replicas: spec.elastic.replicas is 2");
  EXPECT_EQ(bench.status().nodes(), (Names{"n0", "n1"})) << "the last ones go";
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (Names{"j-w-0-1", "j-w-1-1"}));
  start_all(bench);
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.status().pod_counts, (api::PodCounts{2, 2}));
  EXPECT_EQ(bench.status().attempt, 1);
  EXPECT_EQ(bench.status().restarts, 0);
  EXPECT_EQ(bench.status().disruptions, 0);
  EXPECT_EQ(bench.status().elastic->replicas, 2);
  EXPECT_EQ(bench.status().elastic->message, "");
}

TEST(Resize, ALongReasonFitsIntoTheStatus) {
  // The API server quotes a refused pod whole. The CRD takes 4096 characters.
  const std::string told = runs_smaller(1, 2, std::string(10'000, 'x'));
  EXPECT_TRUE(told.starts_with("runs with 1 of 2 replicas: xxx"));
  EXPECT_LE(told.size(), 4096U);
}

TEST(Resize, NoPodOfTheNewSizeRunsBesideTheOld) {
  JobBench bench(elastic_spec(3));
  bench.run();
  for (auto& [name, pod] : bench.pods) pod.lingers = true;
  want(bench, 2);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(bench.step().creates.empty());
  EXPECT_EQ(bench.status().reason, "Resizing");
  bench.pods.erase("j-w-0-0");
  bench.pods.erase("j-w-2-0");
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(bench.step().creates.empty());
  bench.restart_operator();
  bench.pods.erase("j-w-1-0");
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (Names{"j-w-0-1", "j-w-1-1"}));
}

TEST(Resize, DoesNotWaitForPodsThatHaveEndedAndThatAFinalizerKeeps) {
  JobBench bench(elastic_spec(3));
  bench.run();
  for (auto& [name, pod] : bench.pods) pod.lingers = true;
  want(bench, 2);
  bench.step();
  bench.end_all(143);
  bench.end(2, 143);
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (Names{"j-w-0-0", "j-w-0-1", "j-w-1-0", "j-w-1-1", "j-w-2-0"}));
}

TEST(Resize, AGangGrowsOnlyIntoRoomThatWasFound) {
  JobBench bench(elastic_spec(2));
  bench.run();
  want(bench, 4);
  Plan plan = bench.step();
  EXPECT_EQ(plan.grow_by, 2);
  EXPECT_TRUE(plan.deletes.empty());
  EXPECT_EQ(bench.status().phase, "Running");
  bench.memory.growth = Grown{{"n7", "n8"}, "4 nodes"};
  plan = bench.step();
  EXPECT_EQ(plan.deletes.size(), 2U);
  EXPECT_EQ(bench.status().nodes(), (Names{"n0", "n1", "n7", "n8"}));
  EXPECT_EQ(bench.status().placement_where, "4 nodes");
  bench.memory.growth.reset();
  bench.settle();
  start_all(bench);
  EXPECT_EQ(bench.pods.size(), 4U);
  EXPECT_EQ(bench.status().phase, "Running");
  EXPECT_EQ(bench.status().restarts, 0);
}

TEST(Resize, RoomThatIsGoneIsNotUsed) {
  JobBench bench(elastic_spec(2));
  bench.run();
  want(bench, 3);
  auto cordoned = std::make_shared<observe::NodeView>();
  cordoned->ready = true;
  cordoned->unschedulable = true;
  bench.nodes["n7"] = cordoned;
  bench.memory.growth = Grown{{"n7"}, ""};
  EXPECT_EQ(bench.step().grow_by, 1);
  bench.memory.growth = Grown{{"n8", "n9"}, ""};
  EXPECT_EQ(bench.step().grow_by, 1) << "more than it wants by now";
  EXPECT_EQ(bench.status().phase, "Running");
}

TEST(Resize, ALostReplicaWithoutANodeIsLeftOut) {
  JobBench bench(elastic_spec(4));
  bench.run();
  bench.no_node = {1};
  lose_node(bench, 1);
  bench.settle();
  EXPECT_EQ(bench.status().nodes(), (Names{"n0", "n2", "n3"}));
  EXPECT_EQ(bench.status().elastic->replicas, 3);
  EXPECT_EQ(
      bench.status().elastic->message,
      "runs with 3 of 4 replicas: pod j-w-1-0 is gone; no node takes the replacement: 0 nodes "
      "are free");
  EXPECT_EQ(bench.status().restarts, 0);
  EXPECT_EQ(bench.status().disruptions, 1);
  start_all(bench);
  EXPECT_EQ(bench.status().pod_counts, (api::PodCounts{3, 3}));
  EXPECT_EQ(bench.status().phase, "Running");
}

TEST(Resize, ALostReplicaWithANodeIsReplaced) {
  JobBench bench(elastic_spec(3));
  bench.run();
  lose_node(bench, 1);
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (Names{"j-w-0-0", "j-w-1-1", "j-w-2-0"}));
}

TEST(Resize, NeverBelowTheSmallestSize) {
  JobBench bench(elastic_spec(3, 3));
  bench.run();
  bench.no_node = {2};
  lose_node(bench, 2);
  steps(bench);
  EXPECT_EQ(bench.status().reason, "WaitingForNode");
  bench.advance(std::chrono::minutes(3));
  bench.step();
  EXPECT_EQ(bench.status().phase, "Queued");
  EXPECT_EQ(bench.status().elastic->replicas, 0);
}

TEST(Resize, TwoLossesMayLeaveTooFew) {
  JobBench bench(elastic_spec(3, 2));
  bench.run();
  bench.no_node = {0, 2};
  lose_node(bench, 0);
  lose_node(bench, 2);
  steps(bench);
  EXPECT_EQ(bench.status().reason, "WaitingForNode") << "one is too few";
}

TEST(Resize, WhatWasLostComesBackAfterAWhile) {
  JobBench bench(elastic_spec(3));
  bench.run();
  bench.no_node = {2};
  lose_node(bench, 2);
  bench.settle();
  start_all(bench);
  ASSERT_EQ(bench.status().pod_counts, (api::PodCounts{2, 2}));
  Plan plan = bench.step();
  EXPECT_EQ(plan.grow_by, 0) << "not at once, or the job would restart all the time";
  ASSERT_TRUE(plan.requeue_after);
  EXPECT_LE(*plan.requeue_after, std::chrono::minutes(5));
  bench.advance(std::chrono::minutes(6));
  plan = bench.step();
  EXPECT_EQ(plan.grow_by, 1);
  bench.memory.growth = Grown{{"n9"}, ""};
  bench.step();
  EXPECT_EQ(bench.status().message, "resized from 2 to 3 replicas: there is room for all");
  bench.memory.growth.reset();
  bench.settle();
  start_all(bench);
  EXPECT_EQ(bench.status().pod_counts, (api::PodCounts{3, 3}));
  EXPECT_EQ(bench.status().elastic->message, "");
}

TEST(Resize, AJobStartsWithAsManyAsThereIsRoomFor) {
  JobBench bench(elastic_spec(4));
  bench.memory.admission = Names{"n0", "n1"};
  bench.memory.admission_smaller = "worker: 2 of 4 pods fit";
  bench.step();
  EXPECT_EQ(bench.status().elastic->replicas, 2);
  EXPECT_EQ(bench.status().elastic->message, "runs with 2 of 4 replicas: worker: 2 of 4 pods fit");
  bench.memory.admission.reset();
  bench.settle();
  start_all(bench);
  EXPECT_EQ(bench.status().pod_counts, (api::PodCounts{2, 2}));
  EXPECT_EQ(bench.status().phase, "Running");
}

TEST(Resize, APlacementThatTheSpecNoLongerAllowsIsDropped) {
  JobBench bench(elastic_spec(2));
  bench.memory.admission = Names{"n0", "n1", "n2"};
  const Plan plan = bench.step();
  EXPECT_TRUE(plan.drop_admission);
  EXPECT_TRUE(plan.queued);
  EXPECT_FALSE(bench.status().placed());
}

TEST(Resize, AJobThatEndedWhileItWasStoppedHasEnded) {
  JobBench bench(elastic_spec(3));
  bench.run();
  for (auto& [name, pod] : bench.pods) pod.lingers = true;
  want(bench, 2);
  bench.step();
  ASSERT_EQ(bench.status().reason, "Resizing");
  for (int rank = 0; rank < 3; ++rank)
    bench.end(rank, 0, {{"version", 1}, {"verdict", "Succeeded"}});
  bench.step();
  EXPECT_EQ(bench.status().phase, "Succeeded");
}

TEST(Resize, TheCheckpointThatWasSavedIsKept) {
  JobBench bench(elastic_spec(3));
  bench.run();
  for (auto& [name, pod] : bench.pods) pod.lingers = true;
  want(bench, 2);
  bench.step();
  bench.end(0, 143,
            {{"version", 1},
             {"verdict", "Terminated"},
             {"attempt", 0},
             {"checkpoint", {{"lastStep", 1200}, {"attempt", 0}}}});
  bench.step();
  EXPECT_EQ(bench.status().checkpoint["lastStep"], 1200) << bench.status().checkpoint;
}

TEST(Resize, OtherRolesKeepTheirSizeAndTheirNodes) {
  json spec = elastic_spec(3);
  json evaluator = spec["roles"][0];
  evaluator["name"] = "eval";
  evaluator["kind"] = "Evaluator";
  evaluator["replicas"] = 1;
  spec["roles"].push_back(evaluator);
  JobBench bench(spec);
  bench.run();
  want(bench, 2);
  bench.step();
  EXPECT_EQ(bench.status().nodes(), (Names{"n0", "n1", "n3"}));
  bench.settle();
  EXPECT_EQ(bench.pod_names(), (Names{"j-eval-0-1", "j-w-0-1", "j-w-1-1"}));
}

TEST(Resize, SuspendingForgetsTheSize) {
  JobBench bench(elastic_spec(3));
  bench.run();
  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_EQ(bench.status().elastic->replicas, 0);
  EXPECT_EQ(bench.status().elastic->selector, "paceline.dev/job-uid=job,paceline.dev/role=w");
}

TEST(Resize, AJobOfAFixedSizeHasNoSuchStatus) {
  JobBench bench;
  bench.run();
  EXPECT_FALSE(bench.status().elastic);
}

}  // namespace
}  // namespace paceline::plan
