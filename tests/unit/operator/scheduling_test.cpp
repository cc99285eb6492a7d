// SPDX-License-Identifier: Apache-2.0
// What one job may not do to others, and what the API server says before a job is queued.
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

json role(int replicas, const json& pod_spec) {
  json spec = {{"containers", json::array({{{"name", "trainer"},
                                            {"image", "i"},
                                            {"command", {"train"}},
                                            {"resources", {{"requests", {{"cpu", 1}}}}}}})}};
  spec.merge_patch(pod_spec);
  return {{"roles",
           json::array({{{"name", "w"}, {"replicas", replicas}, {"template", {{"spec", spec}}}}})}};
}

std::string reason(const ControllerBench& bench, const std::string& job) {
  return bench.job(job)["status"].value("reason", "");
}

TEST(Scheduling, AWrongTypeInATemplateStopsItsOwnJobOnly) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("list", role(1, {{"securityContext", json::array({1})}}));
  json number = role(1, json::object());
  number["roles"][0]["template"]["spec"]["containers"][0]["terminationMessagePath"] = 5;
  bench.add_job("number", number);
  bench.add_job("valid");
  bench.settle();
  EXPECT_EQ(bench.job("valid")["status"]["phase"], "Running");
  for (const char* job : {"list", "number"}) {
    EXPECT_EQ(reason(bench, job), "InvalidSpec");
    EXPECT_TRUE(bench.pods(job).empty());
  }
}

TEST(Scheduling, AnInvalidJobOfAnotherManagerIsLeftAlone) {
  ControllerBench bench;
  json spec = role(1, {{"securityContext", json::array({1})}});
  spec["managedBy"] = "example.com/other";
  bench.add_job("theirs", spec);
  bench.settle();
  bench.advance(std::chrono::seconds(2));
  EXPECT_FALSE(bench.job("theirs").contains("status")) << bench.job("theirs")["status"].dump(1);
}

TEST(Scheduling, ARefusedJobNeitherWaitsInTheQueueNorEvicts) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "high"}}}, {"value", 10}, {"preemptionPolicy", "Never"}});
  bench.add_job("running");
  bench.settle();
  ASSERT_EQ(bench.job("running")["status"]["phase"], "Running");
  json refused = role(2, {{"noSuchField", 1}});
  refused["scheduling"] = {{"priorityClassName", "high"}};
  bench.add_job("refused", refused);
  bench.settle();
  EXPECT_EQ(reason(bench, "refused"), "PodRefused") << bench.job("refused")["status"].dump(1);
  EXPECT_EQ(bench.job("running")["status"]["phase"], "Running");

  // It reserves nothing either: a small job behind it starts at once.
  bench.add_node("n1", 1);
  bench.add_job("small", role(1, json::object()));
  bench.settle();
  EXPECT_EQ(bench.job("small")["status"]["phase"], "Running");
}

TEST(Scheduling, AnotherPriorityOfAWaitingJobActsAtOnce) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "high"}}}, {"value", 10}, {"preemptionPolicy", "Never"}});
  bench.add_job("running");
  bench.add_job("waits");
  bench.settle();
  ASSERT_EQ(reason(bench, "waits"), "WaitingForRoom");
  bench.patch_job("waits", {{"spec", {{"scheduling", {{"priorityClassName", "high"}}}}}});
  bench.settle();
  EXPECT_EQ(bench.job("waits")["status"]["phase"], "Running")
      << bench.job("waits")["status"].dump(1);
  EXPECT_EQ(bench.job("running")["status"]["phase"], "Queued");
}

TEST(Scheduling, PodsCountAsTheApiServerAdmitsThem) {
  ControllerBench bench;
  bench.add_node("n0", 3);
  bench.cluster().set_admission([](const kube::Resource& resource, json& object) {
    // as a RuntimeClass with overhead does
    if (resource.plural == kube::kPods.plural) object["spec"]["overhead"] = {{"cpu", "1"}};
  });
  bench.add_job("j");
  bench.settle();
  EXPECT_EQ(reason(bench, "j"), "TooLarge") << bench.job("j")["status"].dump(1);
  bench.add_node("n1", 2);
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
}

TEST(Scheduling, ATolerationThatAdmissionAddsCounts) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.cluster().poke(kube::kNodes, "", "n0",
                       R"({"spec":{"taints":[{"key":"gpu","effect":"NoSchedule"}]}})");
  bench.add_job("untolerating");
  bench.settle();
  EXPECT_EQ(reason(bench, "untolerating"), "TooLarge");
  bench.cluster().set_admission([](const kube::Resource& resource, json& object) {
    if (resource.plural == kube::kPods.plural)
      object["spec"]["tolerations"] = json::array({{{"key", "gpu"}, {"operator", "Exists"}}});
  });
  bench.add_job("tolerating");
  bench.settle();
  EXPECT_EQ(bench.job("tolerating")["status"]["phase"], "Running")
      << bench.job("tolerating")["status"].dump(1);
}

TEST(Scheduling, TerminatingPodsOfADeletedJobTakeRoom) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("deleted");
  bench.settle();
  bench.pods_linger = true;
  bench.remove_job("deleted");
  bench.settle();
  ASSERT_EQ(bench.pods("deleted").size(), 2U);
  bench.add_job("next");
  bench.settle();
  EXPECT_EQ(reason(bench, "next"), "WaitingForRoom") << bench.job("next")["status"].dump(1);
  EXPECT_TRUE(bench.pods("next").empty());
  bench.pods_linger = false;
  bench.settle();
  EXPECT_EQ(bench.job("next")["status"]["phase"], "Running");
}

TEST(Scheduling, AFullQuotaIsWaitedForAndNotARefusal) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("first");
  bench.settle();
  bench.add_job("second");
  bench.settle();
  EXPECT_EQ(reason(bench, "second"), "QuotaExceeded") << bench.job("second")["status"].dump(1);
  bench.finish("first");
  EXPECT_EQ(bench.job("second")["status"]["phase"], "Running")
      << bench.job("second")["status"].dump(1);
}

TEST(Scheduling, AnImpossibleQuotaHoldsBackItsOwnJobOnly) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.settle();
  bench.add_job("large", role(3, json::object()));
  bench.settle();
  EXPECT_EQ(reason(bench, "large"), "QuotaTooSmall") << bench.job("large")["status"].dump(1);
  bench.add_job("small");
  bench.settle();
  EXPECT_EQ(bench.job("small")["status"]["phase"], "Running")
      << bench.job("small")["status"].dump(1);
}

TEST(Scheduling, QuotasThatMayNotConcernThePodsHoldNothingBack) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  // Of a quota with scopes it is not known which pods it counts, and pods here have no limits.
  bench.create(
      kube::kResourceQuotas, "default",
      {{"metadata", {{"name", "scoped"}}},
       {"spec", {{"hard", {{"requests.cpu", "1"}}}, {"scopes", json::array({"Terminating"})}}}});
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "limits"}}}, {"spec", {{"hard", {{"limits.cpu", "1"}}}}}});
  bench.settle();
  bench.add_job("j");
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
}

TEST(Scheduling, ADefaultPriorityClassThatPreemptsIsRefusedByName) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bench.create(kube::kPriorityClasses, "",
               {{"metadata", {{"name", "usual"}}}, {"value", 10}, {"globalDefault", true}});
  bench.settle();
  bench.add_job("j");
  bench.settle();
  EXPECT_EQ(reason(bench, "j"), "PriorityClassPreempts") << bench.job("j")["status"].dump(1);
  EXPECT_NE(bench.job("j")["status"].dump().find("usual"), std::string::npos);
}

TEST(Scheduling, WhatPodsNeedIsAskedAgainOnlyIfThePodsChange) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  int asked = 0;
  bench.cluster().set_admission([&](const kube::Resource& resource, json& object) {
    if (resource.plural != kube::kPods.plural) return;
    asked += object["metadata"]["name"].get<std::string>().ends_with("-check") ? 1 : 0;
  });
  bench.add_job("j");
  bench.settle();
  // A user's field changes the generation. Until the operator had asked again, the scheduler
  // guessed what the missing pods of the gang need.
  bench.patch_job("j", {{"spec", {{"ttlAfterFinished", "1h"}}}});
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_EQ(asked, 1);
}

TEST(Scheduling, TheGatesOfOthersStay) {
  ControllerBench bench;
  bench.add_node("n0", 8);
  bench.cluster().set_admission([](const kube::Resource& resource, json& object) {
    if (resource.plural == kube::kPods.plural)
      object["spec"]["schedulingGates"].push_back({{"name", "example.com/quota"}});
  });
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U);
  for (const json& pod : bench.pods("j"))
    EXPECT_EQ(pod["spec"]["schedulingGates"], json::array({{{"name", "example.com/quota"}}}));
}

}  // namespace
}  // namespace paceline::apply
