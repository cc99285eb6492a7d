// SPDX-License-Identifier: Apache-2.0
// Pods in the network of their node: each has ports there that no other pod has.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "common/contract/names.hpp"
#include "operator/api/parse.hpp"
#include "operator/apply/host_network/host_ports.hpp"
#include "operator/apply/stores.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

json in_host_network(int replicas) {
  json spec = json::parse(R"({"roles": [{"name": "w", "template": {"spec": {
      "hostNetwork": true, "containers": [{"name": "trainer", "image": "i", "command": ["train"],
                                           "resources": {"requests": {"cpu": 1}}}]}}}]})");
  spec["roles"][0]["replicas"] = replicas;
  return spec;
}

struct HostNetworkTest : testing::Test {
  /// The first port of each pod of the job, which is what its launcher is told.
  std::vector<int> bases(const std::string& job) {
    std::vector<int> found;
    for (const json& pod : bench.pods(job)) {
      const json& ports = pod["spec"]["containers"][0]["ports"];
      found.push_back(ports[0]["hostPort"]);
      EXPECT_EQ(setting_of(pod, "PORT_BASE"), std::to_string(found.back()));
      EXPECT_EQ(setting_of(pod, "HTTP_LISTEN"),
                "[::]:" + std::to_string(ports[1]["hostPort"].get<int>()));
    }
    return found;
  }

  void add_job(const std::string& name, int replicas) {
    bench.add_job(name, in_host_network(replicas));
    bench.settle();
  }

  ControllerBench bench;
};

TEST_F(HostNetworkTest, PodsOfANodeShareNoPortAlsoAfterTheOperatorRestarted) {
  bench.add_node("n0", 8);
  add_job("one", 2);
  add_job("two", 2);
  EXPECT_EQ(bases("one"), (std::vector{16000, 16100}));
  EXPECT_EQ(bases("two"), (std::vector{16200, 16300}));
  bench.restart_operator();
  bench.settle();
  add_job("three", 1);
  EXPECT_EQ(bases("three"), std::vector{16400});
  EXPECT_EQ(bases("one"), (std::vector{16000, 16100}));
}

TEST_F(HostNetworkTest, PodsOfSeveralNodesHaveTheSamePorts) {
  for (const char* node : {"n0", "n1"}) bench.add_node(node, 1);
  add_job("wide", 2);
  EXPECT_EQ(bases("wide"), (std::vector{16000, 16000}));
}

TEST_F(HostNetworkTest, PortsOfOtherPodsCountUntilTheyEnd) {
  bench.add_node("n0", 8);
  const json container = {
      {"name", "c"},
      {"image", "i"},
      {"ports", json::array({{{"containerPort", 16001}, {"hostPort", 16001}}})}};
  const json spec = {{"nodeName", "n0"}, {"containers", json::array({container})}};
  bench.create(
      kube::kPods, "default",
      {{"metadata", {{"name", "other"}}}, {"spec", spec}, {"status", {{"phase", "Running"}}}});
  bench.create(
      kube::kPods, "default",
      {{"metadata", {{"name", "ended"}}}, {"spec", spec}, {"status", {{"phase", "Succeeded"}}}});
  bench.settle();
  add_job("one", 1);
  EXPECT_EQ(bases("one"), std::vector{16100});
  bench.finish("one");
  bench.remove_job("one");
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "other"));
  bench.settle();
  add_job("two", 1);
  EXPECT_EQ(bases("two"), std::vector{16000});
}

TEST_F(HostNetworkTest, AJobWaitsForNodesWithPortsLeft) {
  bench.add_node("n0", 100);
  add_job("crowd", 41);
  EXPECT_EQ(bench.pods("crowd").size(), 0U);
  json placed = bench.condition("crowd", "Placed");
  EXPECT_EQ(placed["reason"], "TooLarge");
  EXPECT_EQ(placed["message"],
            "does not fit even when all other jobs have ended: w: 40 of 41 pods fit on 1 nodes; 1 "
            "not enough host ports");
  bench.add_node("n1", 100);
  bench.settle();
  std::set<std::pair<std::string, int>> ports;
  for (const json& pod : bench.pods("crowd"))
    ports.emplace(pod["spec"]["nodeName"], pod["spec"]["containers"][0]["ports"][0]["hostPort"]);
  EXPECT_EQ(ports.size(), 41U);

  add_job("next", 40);
  EXPECT_EQ(bench.pods("next").size(), 0U);
  placed = bench.condition("next", "Placed");
  EXPECT_EQ(placed["reason"], "WaitingForRoom");
  EXPECT_EQ(placed["message"], "w: 39 of 40 pods fit on 2 nodes; 2 not enough host ports");
  bench.finish("crowd");
  EXPECT_EQ(bench.pods("next").size(), 40U) << "ports are free when the pods have ended";
}

TEST_F(HostNetworkTest, ANodeWhosePortsOtherPodsHaveIsNotChosen) {
  for (const char* node : {"n0", "n1"}) bench.add_node(node, 8);
  json ports = json::array();
  for (int port = 16000; port < 20000; port += 100)
    ports.push_back({{"containerPort", port}, {"hostPort", port}});
  const json container = {{"name", "c"}, {"image", "i"}, {"ports", ports}};
  bench.create(kube::kPods, "default",
               {{"metadata", {{"name", "other"}}},
                {"spec", {{"nodeName", "n0"}, {"containers", json::array({container})}}},
                {"status", {{"phase", "Running"}}}});
  bench.settle();
  add_job("one", 2);
  ASSERT_EQ(bases("one"), (std::vector{16000, 16100}));
  for (const json& pod : bench.pods("one")) EXPECT_EQ(pod["spec"]["nodeName"], "n1");
}

api::TrainingJob job_of(const std::string& uid, int replicas) {
  json spec = in_host_network(replicas);
  spec["framework"] = {{"type", "Custom"}, {"processesPerReplica", 1}};
  return api::parse_training_job({{"apiVersion", "paceline.dev/v1alpha1"},
                                  {"kind", "TrainingJob"},
                                  {"metadata", {{"name", uid}, {"namespace", "d"}, {"uid", uid}}},
                                  {"spec", spec}})
      .value();
}

struct HostPortsTest : testing::Test {
  static std::vector<plan::CreatePod> creates(int pods, int incarnation = 0) {
    std::vector<plan::CreatePod> list;
    for (int rank = 0; rank < pods; ++rank) list.push_back({rank, incarnation, "n0"});
    return list;
  }

  /// The first port of each pod; the reason alone if there are too few.
  std::variant<std::vector<int>, std::string> choose(const std::string& job,
                                                     std::vector<plan::CreatePod> list) {
    const int pods = static_cast<int>(list.size());
    if (const auto refused = ports.choose(job_of(job, pods), list)) return refused->reason;
    std::vector<int> bases;
    for (const plan::CreatePod& create : list) bases.push_back(create.port_base);
    return bases;
  }

  /// The cache has had the pod of a job with one role.
  void see(const std::string& job, int rank, int incarnation) {
    observe::PodView pod;
    pod.meta.name = contract::pod_name(job, "w", rank, incarnation);
    pod.host_ports = {16000};
    pod.gang = std::make_unique<observe::GangMember>();
    pod.gang->job_uid = job;
    pod.gang->incarnation = incarnation;
    ports.seen(pod);
  }

  using Bases = std::vector<int>;
  ManualClock clock;
  Stores stores;  // without pods: each has gone again
  HostPorts ports{clock, stores.pods};
};

TEST_F(HostPortsTest, APlacementThatCameTooLateIsRefusedAndTakesNoPorts) {
  auto crowd = creates(41);
  const auto refused = ports.choose(job_of("crowd", 41), crowd);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reason, "HostPortsTaken");
  EXPECT_NE(refused->message.find("node n0 has no ports left"), std::string::npos)
      << refused->message;
  auto fitting = creates(40);
  EXPECT_FALSE(ports.choose(job_of("fits", 40), fitting));
  std::set<int> bases;
  for (const plan::CreatePod& create : fitting) bases.insert(create.port_base);
  EXPECT_EQ(bases.size(), 40U);
  EXPECT_FALSE(bases.contains(0));
}

TEST_F(HostPortsTest, PortsOfPodsThatHaveComeAndGoneAreFreeAtOnce) {
  ASSERT_EQ(choose("gone", creates(40)).index(), 0U);
  EXPECT_EQ(std::get<std::string>(choose("next", creates(1))), "HostPortsTaken");
  see("gone", 1, 0);
  EXPECT_EQ(std::get<Bases>(choose("next", creates(1))), Bases{16100});
  for (int rank = 0; rank < 40; ++rank) see("gone", rank, 0);
  EXPECT_EQ(std::get<Bases>(choose("other", creates(2))), (Bases{16000, 16200}));
}

TEST_F(HostPortsTest, APodThatWasDeletedBeforeItWasBoundHasNone) {
  json pod = json::parse(R"({
      "metadata": {"name": "old-w-0-0", "namespace": "d", "uid": "p", "resourceVersion": "1",
                   "labels": {"paceline.dev/job-uid": "old"}, "ownerReferences": [
                     {"kind": "TrainingJob", "controller": true, "uid": "old", "name": "old"}]},
      "spec": {"containers": [{"name": "c", "ports": [{"hostPort": 16000}]}],
               "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                 "nodeSelectorTerms": [{"matchFields": [
                   {"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]}}}}})");
  const auto see_pod = [&] {
    stores.pods.begin_replace();
    EXPECT_TRUE(stores.pods.add(pod.dump()));
    stores.pods.end_replace(1);
  };
  see_pod();
  EXPECT_EQ(std::get<Bases>(choose("a", creates(1))), Bases{16100});
  pod["metadata"]["resourceVersion"] = "2";
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";  // a finalizer keeps it
  see_pod();
  EXPECT_EQ(std::get<Bases>(choose("b", creates(1))), Bases{16000});
}

TEST_F(HostPortsTest, AnEarlierPodOfTheReplicaLeavesTheChoiceForThePresentOne) {
  EXPECT_EQ(std::get<Bases>(choose("job", creates(1, 1))), Bases{16000});
  see("job", 0, 0);
  see("other", 0, 1);
  EXPECT_EQ(std::get<Bases>(choose("next", creates(1))), Bases{16100});
  see("job", 0, 1);
  EXPECT_EQ(std::get<Bases>(choose("third", creates(1))), Bases{16000});
}

TEST_F(HostPortsTest, PortsOfAPodThatNeverCameAreFreeAfterAMinute) {
  EXPECT_EQ(std::get<Bases>(choose("refused", creates(1))), Bases{16000});
  clock.advance(std::chrono::seconds(59));
  EXPECT_EQ(std::get<Bases>(choose("early", creates(1))), Bases{16100});
  clock.advance(std::chrono::seconds(2));
  EXPECT_EQ(std::get<Bases>(choose("late", creates(1))), Bases{16000});
}

TEST_F(HostNetworkTest, TheSummaryIsReadFromThePortOfRankZerosLauncher) {
  bench.add_node("n0", 8);
  add_job("one", 2);
  EXPECT_GT(bench.summary_reads, 0);
  EXPECT_EQ(bench.summary_port, 16001);
}

TEST_F(HostNetworkTest, TheServiceOfAnEarlierOperatorIsNamed) {
  add_job("one", 1);  // it waits for a node
  const json before = json::array({{{"name", "rendezvous"}, {"port", 29400}}});
  ASSERT_TRUE(bench.cluster().poke(kube::kServices, "default", "one-rank0",
                                   json{{"spec", {{"ports", before}}}}.dump()));
  bench.restart_operator();
  bench.add_node("n0", 8);
  bench.settle();
  EXPECT_TRUE(bench.pods("one").empty());
  const json placed = bench.condition("one", "Placed");
  EXPECT_EQ(placed["reason"], "ServiceOutdated");
  EXPECT_NE(placed["message"].get<std::string>().find("kubectl delete service one-rank0"),
            std::string::npos)
      << placed;
  ASSERT_TRUE(bench.cluster().erase(kube::kServices, "default", "one-rank0"));
  bench.advance(std::chrono::minutes(2));
  bench.settle();
  EXPECT_EQ(bases("one"), std::vector{16000});
}

TEST_F(HostNetworkTest, ThePodsOfOtherJobsKeepTheirUsualPorts) {
  bench.add_node("n0", 8);
  bench.add_job("plain");
  bench.settle();
  EXPECT_FALSE(bench.pods("plain").at(0)["spec"]["containers"][0].contains("ports"));
  EXPECT_EQ(setting_of(bench.pods("plain").at(0), "PORT_BASE"), "");
  EXPECT_EQ(bench.summary_port, 29401);
}

}  // namespace
}  // namespace paceline::apply
