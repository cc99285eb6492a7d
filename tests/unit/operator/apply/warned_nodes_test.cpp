// SPDX-License-Identifier: Apache-2.0
// Which nodes of a running job its launcher is warned of.
#include "operator/apply/warnings/warned_nodes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "common/contract/warnings.hpp"
#include "operator/apply/summary_poller.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kTainted = R"({"spec":{"taints":[{"key":"spot","effect":"NoSchedule"}]}})";
constexpr const char* kGpus = R"([{"key":"nvidia.com/gpu","operator":"Exists"}])";

struct WarnedNodesTest : ::testing::Test {
  WarnedNodesTest() {
    for (const char* name : {"n0", "n1", "n2"}) {
      nodes[name].meta.name = name;
      nodes[name].ready = true;
    }
    add_pod("n0");
    add_pod("n1");
    EXPECT_EQ(look(), Names());
  }

  void add_pod(const std::string& node, const std::string& tolerations = kGpus) {
    auto pod = std::make_shared<observe::PodView>();
    pod->node = node;
    pod->gang = std::make_unique<observe::GangMember>();
    pod->gang->tolerations = tolerations;
    pods.push_back(std::move(pod));
  }

  Names look() { return warnings().nodes; }
  Names tainted() { return warnings().tainted; }
  Warnings warnings() {
    const std::vector<std::shared_ptr<const observe::PodView>> seen(pods.begin(), pods.end());
    const auto node = [this](const std::string& name) {
      return std::make_shared<const observe::NodeView>(nodes.at(name));
    };
    return warned.look(seen, node, now);
  }

  std::map<std::string, observe::NodeView> nodes;
  std::vector<std::shared_ptr<observe::PodView>> pods;
  WarnedNodes warned;
  SteadyTime now{};
};

TEST_F(WarnedNodesTest, ACordonedNodeOfTheJobIsWarnedWhileItIsReady) {
  nodes["n1"].unschedulable = true;
  nodes["n2"].unschedulable = true;
  EXPECT_EQ(look(), Names{"n1"}) << "n2 has no pod of the job";
  nodes["n1"].ready = false;
  EXPECT_EQ(look(), Names());
  nodes["n1"].ready = true;
  pods[1]->deleting = true;
  EXPECT_EQ(look(), Names()) << "its pod saves already";
}

TEST_F(WarnedNodesTest, ATaintAgainstThePodsIsAWarning) {
  nodes["n0"].taints = {{"karpenter.sh/disrupted", "", "NoSchedule"}};
  EXPECT_EQ(look(), Names{"n0"});
  EXPECT_EQ(look(), Names{"n0"}) << "as long as it lasts";
  nodes["n0"].taints.clear();
  EXPECT_EQ(look(), Names());
  nodes["n0"].taints = {{"DeletionCandidateOfClusterAutoscaler", "", "PreferNoSchedule"}};
  EXPECT_EQ(look(), Names());
}

TEST_F(WarnedNodesTest, ATaintThatThePodsThereTolerateIsNone) {
  nodes["n0"].taints = {{"nvidia.com/gpu", "", "NoSchedule"}};
  EXPECT_EQ(look(), Names());
  nodes["n0"].taints.push_back({"ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"});
  EXPECT_EQ(look(), Names{"n0"});
  nodes["n2"].taints = {{"team", "a", "NoSchedule"}};
  add_pod("n2", R"([{"key":"team","operator":"Equal","value":"a","effect":"NoSchedule"}])");
  EXPECT_EQ(look(), Names{"n0"});
  add_pod("n2", "");
  EXPECT_EQ(look(), (Names{"n0", "n2"})) << "another pod there does not";
}

TEST_F(WarnedNodesTest, AnotherOperatorKnowsATaintThatCameBefore) {
  nodes["n0"].taints = {{"karpenter.sh/disrupted", "", "NoSchedule"}};
  warned = {};
  EXPECT_EQ(look(), Names{"n0"}) << "its pod could not have been bound there";
}

TEST_F(WarnedNodesTest, ATaintLongAfterACordonIsAWarningOfItsOwn) {
  nodes["n0"].unschedulable = true;
  EXPECT_EQ(tainted(), Names());
  nodes["n0"].taints = {{"node.kubernetes.io/unschedulable", "", "NoSchedule"}};
  now += std::chrono::hours(1);
  EXPECT_EQ(tainted(), Names()) << "Kubernetes sets it for the cordon";
  nodes["n0"].taints.push_back({"aws-node-termination-handler/spot-itn", "", "NoSchedule"});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tainted(), Names{"n0"});
    EXPECT_EQ(look(), Names{"n0"});
  }
  nodes["n0"].taints.push_back({"karpenter.sh/disrupted", "", "NoSchedule"});
  EXPECT_EQ(tainted(), Names{"n0"}) << "of the same kind";
  nodes["n0"].unschedulable = false;
  nodes["n0"].taints.clear();
  EXPECT_EQ(look(), Names());
  nodes["n0"].unschedulable = true;
  EXPECT_EQ(tainted(), Names()) << "another cordon";
}

TEST_F(WarnedNodesTest, ACordonAndATaintOfOneEventAreOneWarning) {
  nodes["n0"].unschedulable = true;
  nodes["n1"].taints = {{"ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"}};
  EXPECT_EQ(look(), (Names{"n0", "n1"}));
  now += std::chrono::seconds(5);
  nodes["n0"].taints = {{"aws-node-termination-handler/spot-itn", "", "NoSchedule"}};
  EXPECT_EQ(tainted(), Names());
  now += std::chrono::hours(1);
  nodes["n1"].unschedulable = true;
  EXPECT_EQ(tainted(), Names()) << "a cordon says no more than the taint before it";
}

TEST_F(WarnedNodesTest, NodesThatStayMarkedHideNoLaterWarning) {
  for (int i = 10; i < 22; ++i) {
    const std::string name = "m" + std::to_string(i);
    nodes[name].meta.name = name;
    nodes[name].ready = true;
    nodes[name].unschedulable = true;
    add_pod(name);
  }
  EXPECT_EQ(look().size(), contract::kMostWarnedNodes);
  nodes["n0"].unschedulable = true;
  for (int i = 0; i < 2; ++i) {
    const Names told = look();
    EXPECT_EQ(told.size(), contract::kMostWarnedNodes);
    EXPECT_EQ(std::ranges::count(told, "n0"), 1);
    EXPECT_TRUE(std::ranges::is_sorted(told));
  }
}

TEST(SummaryPoller, TellsAtOnceOfWhatCameDuringARead) {
  const std::vector<std::function<void(Launcher&)>> changes{
      [](Launcher& launcher) { launcher.warned.nodes = {"n0"}; },
      [](Launcher& launcher) { launcher.warned = {{"n0"}, {"n0"}}; },
      [](Launcher& launcher) { launcher.ip = "10.0.0.2"; }};
  for (const auto& change : changes) {
    ManualClock clock;
    SummaryPoller::Target target{{"10.0.0.1", 1, "token", {}}, std::chrono::seconds(15)};
    std::vector<Launcher> asked;
    SummaryPoller* self = nullptr;
    SummaryPoller poller(
        clock,
        [&](const Launcher& launcher) -> Result<std::string> {
          asked.push_back(launcher);
          change(target.launcher);
          self->watch("job", target);
          return fail(Code::kUnavailable, Origin::kHttp, "nobody answers", true);
        },
        [](const std::string&, const std::optional<status::Report>&) {});
    self = &poller;
    poller.watch("job", target);
    EXPECT_TRUE(poller.poll_one());
    EXPECT_TRUE(poller.poll_one()) << "a spot notice may leave 30 seconds";
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[1].ip, target.launcher.ip);
    EXPECT_EQ(asked[1].warned, target.launcher.warned);
    EXPECT_FALSE(poller.poll_one()) << "nothing has changed since";
  }
}

TEST(SummaryPoller, TellsAWarningBeforeItReadsOtherJobs) {
  const ManualClock clock;
  std::vector<std::string> asked;
  SummaryPoller poller(
      clock,
      [&](const Launcher& launcher) -> Result<std::string> {
        asked.push_back(launcher.ip);
        return fail(Code::kUnavailable, Origin::kHttp, "nobody answers", true);
      },
      [](const std::string&, const std::optional<status::Report>&) {});
  for (const char* job : {"a", "b", "c"}) poller.watch(job, {{job, 1, "token", {}}, {}});
  poller.watch("c", {{"c", 1, "token", {{"n0"}, {}}}, {}});
  EXPECT_TRUE(poller.poll_one());
  EXPECT_EQ(asked, Names{"c"}) << "each silent launcher takes a second or two";
}

TEST(SummaryPoller, AnExceptionAboutOneJobIsNoAnswerAndOthersAreRead) {
  const ManualClock clock;
  Names told;
  SummaryPoller poller(
      clock,
      [](const Launcher& launcher) -> Result<std::string> {
        if (launcher.ip == "a") throw std::runtime_error("simulated");
        return R"({"version": 1, "phase": "Running"})";
      },
      [&](const std::string& job, const std::optional<status::Report>&) { told.push_back(job); });
  for (const char* job : {"a", "b"})
    poller.watch(job, {{job, 1, "token", {}}, std::chrono::seconds(15)});
  EXPECT_TRUE(poller.poll_one());
  EXPECT_TRUE(poller.poll_one());
  EXPECT_EQ(told, Names{"b"});
  EXPECT_FALSE(poller.poll_one());
}

TEST(WarnedNodes, ACordonReachesTheLauncherAtOnceAndStopsNothing) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  bench.add_node("n1", 1);
  bench.summary = R"({"version": 1, "phase": "Running", "gathered": 2, "expected": 2,
                      "training": {"step": 5}})";
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_TRUE(bench.warned.nodes.empty());
  bench.cluster().poke(kube::kNodes, "", "n1", R"({"spec":{"unschedulable":true}})");
  bench.settle();
  EXPECT_EQ(bench.warned.nodes, Names{"n1"});
  bench.summary = R"({"version": 1, "phase": "Running", "gathered": 2, "expected": 2,
                      "checkpoint": {"lastStep": 7, "attempt": 0}})";
  bench.advance(std::chrono::seconds(20));
  const json status = bench.job("j")["status"];
  EXPECT_EQ(status["checkpoint"]["lastStep"], 7) << status.dump(1);
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(bench.pods("j").size(), 2U);
  EXPECT_EQ(status.value("disruptions", 0), 0);
  bench.cluster().poke(kube::kNodes, "", "n1", R"({"spec":{"unschedulable":null}})");
  bench.settle();
  bench.advance(std::chrono::seconds(20));
  EXPECT_TRUE(bench.warned.nodes.empty());
}

TEST(WarnedNodes, ATaintIsToldByTheNextOperatorToo) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.summary = R"({"version": 1, "phase": "Running", "gathered": 2, "expected": 2})";
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  bench.cluster().poke(kube::kNodes, "", "n0", kTainted);
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.warned.nodes, Names{"n0"}) << "it came while no operator looked";
  EXPECT_EQ(bench.warned.tainted, Names());
}

}  // namespace
}  // namespace paceline::apply
