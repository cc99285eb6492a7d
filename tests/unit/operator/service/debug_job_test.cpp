// SPDX-License-Identifier: Apache-2.0
// What /debug/jobs says of jobs in every state, and to whom.
#include "operator/service/debug_job.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "common/contract/labels.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline {
namespace {

using namespace std::chrono_literals;
using apply::ControllerBench;
using nlohmann::json;

const Leadership kLeads{true, "operator-0"};

http::Response ask(ControllerBench& bench, const std::string& target,
                   const Leadership& leadership = kLeads) {
  return debug_job(target, bench.controller(), bench.queue(), bench.clock(), leadership);
}

json page_of(ControllerBench& bench, const std::string& name) {
  const http::Response response = ask(bench, "/debug/jobs/default/" + name);
  EXPECT_EQ(response.status, 200) << response.body;
  return json::parse(response.body);
}

apply::JobFacts facts_of(const std::function<void(observe::JobView&)>& change = {}) {
  observe::JobView view;
  view.meta.ns = "default";
  view.meta.name = "j";
  view.job.spec.managed_by = contract::kManagedBy;
  view.status.phase = "Queued";
  if (change) change(view);
  apply::JobFacts facts;
  facts.job = std::make_shared<const observe::JobView>(std::move(view));
  return facts;
}

const WallTime kNow = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1);

TEST(DebugJob, AWaitingJobSaysForWhatAndBehindWhom) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("runs");
  bench.settle();
  bench.add_job("first");
  bench.settle();
  bench.advance(1s);
  bench.add_job("second");
  bench.settle();
  bench.advance(2s);
  const json page = page_of(bench, "second");
  EXPECT_EQ(page["phase"], "Queued") << page.dump(1);
  EXPECT_EQ(page["reason"], "WaitingForRoom");
  EXPECT_EQ(page["message"], bench.job("second")["status"]["message"]);
  EXPECT_EQ(page["waitsFor"][0]["what"], "room");
  EXPECT_EQ(page["queue"]["position"], 2);
  EXPECT_EQ(page["queue"]["of"], 2);
  EXPECT_EQ(page["queue"]["before"], json::array({"default/first"}));
  EXPECT_EQ(page["lastPlan"]["actions"], json::array({"ask the scheduler for a placement"}));
  EXPECT_EQ(page["operator"]["leader"], "operator-0");
  EXPECT_FALSE(page.contains("lastError"));
}

TEST(DebugJob, ARunningJobWaitsForNothing) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"failurePolicy", {{"maxDisruptions", 5}}}});
  bench.settle();
  const json page = page_of(bench, "j");
  EXPECT_EQ(page["phase"], "Running") << page.dump(1);
  EXPECT_EQ(page["waitsFor"], json::array());
  EXPECT_EQ(page["podsNotRunning"], json::array());
  EXPECT_EQ(page["restarts"], (json{{"used", 0}, {"allowed", 3}}));
  EXPECT_EQ(page["disruptions"]["allowed"], 5);
  EXPECT_FALSE(page["queue"].contains("position"));
}

TEST(DebugJob, AStartingJobNamesPodsAndItsNextLook) {
  ControllerBench bench;
  bench.pods_wait = true;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  const json page = page_of(bench, "j");
  ASSERT_EQ(page["podsNotRunning"].size(), 2U) << page.dump(1);
  EXPECT_EQ(page["podsNotRunning"][0]["node"], "n0");
  EXPECT_TRUE(page["nextLook"].get<std::string>().ends_with("Z")) << page["nextLook"];
}

TEST(DebugJob, ARefusalOfTheApiServerIsTheLastError) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "POST" || request.target.find("/pods") == std::string::npos)
      return std::nullopt;
    kube::Fault fault;
    fault.status = 403;
    fault.message = "no pods today";
    return fault;
  });
  bench.add_job("j");
  bench.settle();
  const json page = page_of(bench, "j");
  ASSERT_EQ(page["waitsFor"].size(), 1U) << page.dump(1);
  EXPECT_EQ(page["waitsFor"][0]["what"], "backOff");
  EXPECT_EQ(page["waitsFor"][0]["reason"], "PodRefused");
  EXPECT_NE(page["lastError"]["message"].get<std::string>().find("no pods today"),
            std::string::npos);
}

TEST(DebugJob, AFullQuotaIsNamed) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "2"}}}}}});
  bench.add_job("runs");
  bench.settle();
  bench.add_job("waits");
  bench.settle();
  EXPECT_EQ(page_of(bench, "waits")["waitsFor"][0]["what"], "quota");
}

TEST(DebugJob, KueueAndNodesAndBackOffsAreNamed) {
  apply::JobFacts facts = facts_of([](observe::JobView& view) {
    view.status.excluded_nodes = {{"bad", "GPU fell off the bus", kNow, kNow + 10min, 2},
                                  {"good-again", "old", kNow - 2h, kNow - 1h, 1}};
  });
  facts.kueue.queue = "team-a";
  facts.kueue.queue_exists = true;
  facts.memory.retry_at = kNow + 8s;
  facts.memory.waiting = plan::Waiting{"NodesExcluded", "waits for nodes where it failed"};
  facts.memory.grow = "2 more nodes";
  facts.memory.request = {.kind = api::Provision::kProvisioningRequest,
                          .created = kNow,
                          .answer = "no capacity",
                          .refused = true,
                          .shape = ""};
  facts.memory.bind_refusal = {"Insufficient cpu", 1, kNow + 10min};
  const json page = job_page(facts, kNow + 8s, kNow);
  std::vector<std::string> what;
  for (const json& item : page["waitsFor"]) what.push_back(item["what"]);
  EXPECT_EQ(what, (std::vector<std::string>{"backOff", "kubeScheduler", "kueue", "excludedNodes",
                                            "nodes"}))
      << page.dump(1);
  EXPECT_EQ(page["waitsFor"][4]["request"]["answer"], "no capacity");
  ASSERT_EQ(page["excludedNodes"].size(), 1U);
  EXPECT_EQ(page["excludedNodes"][0]["message"], "GPU fell off the bus");
  EXPECT_EQ(page["nextLook"], "2026-01-01T00:00:08Z");
}

TEST(DebugJob, AJobOfAnotherManagerNamesIt) {
  const json page = job_page(facts_of([](observe::JobView& view) {
                               view.job.spec.managed_by = "kueue.x-k8s.io/multikueue";
                             }),
                             std::nullopt, kNow);
  EXPECT_EQ(page["waitsFor"][0]["what"], "manager");
  EXPECT_EQ(page["nextLook"], "after the next event");
}

TEST(DebugJob, OthersAreRefusedInJson) {
  ControllerBench bench;
  bench.add_job("j");
  bench.settle();
  for (const char* target : {"/debug/jobs/default/none", "/debug/jobs/j", "/debug/jobs/a/b/c"}) {
    const http::Response response = ask(bench, target);
    EXPECT_EQ(response.status, 404) << target;
    EXPECT_TRUE(json::parse(response.body).contains("error"));
  }
  EXPECT_EQ(ask(bench, "/debug/jobs/default/j?pretty").status, 200);
  const http::Response standby = ask(bench, "/debug/jobs/default/j", {false, "operator-1"});
  EXPECT_EQ(standby.status, 503);
  EXPECT_EQ(json::parse(standby.body)["operator"]["leader"], "operator-1");
}

TEST(DebugJob, NothingCallsTheApiServer) {
  ControllerBench bench;
  bench.add_job("j");
  bench.settle();
  int requests = 0;
  bench.cluster().set_faults([&](const http::Request&) -> std::optional<kube::Fault> {
    ++requests;
    return std::nullopt;
  });
  page_of(bench, "j");
  EXPECT_EQ(requests, 0);
}

}  // namespace
}  // namespace paceline
