// SPDX-License-Identifier: Apache-2.0
// What the operator keeps of objects.
#include "operator/observe/views.hpp"

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

namespace paceline::observe {
namespace {

using nlohmann::json;

std::string node(const std::string& name) {
  json labels = {{"kubernetes.io/hostname", name}};
  for (int i = 0; i < 100; ++i)
    labels["feature.node.kubernetes.io/cpu-cpuid.FEATURE" + std::to_string(i)] = "true";
  return json{{"metadata", {{"name", name}, {"labels", labels}}}}.dump();
}

TEST(Views, ALabelThatNodesShareIsKeptOnce) {
  const auto first = project_node(node("n1"));
  const auto second = project_node(node("n2"));
  ASSERT_TRUE(first && second);
  const std::string key = "feature.node.kubernetes.io/cpu-cpuid.FEATURE7";
  ASSERT_NE(first->label(key), nullptr);
  EXPECT_EQ(*first->label(key), "true");
  EXPECT_EQ(first->label(key), second->label(key)) << "the same text, not one that is equal";
  EXPECT_EQ(*first->label("kubernetes.io/hostname"), "n1");
  EXPECT_EQ(*second->label("kubernetes.io/hostname"), "n2");
  EXPECT_EQ(first->label("absent"), nullptr);
}

TEST(Views, PortsOfTheNodeAreThoseOfAllContainersOfAPod) {
  const json spec = json::parse(R"({
      "initContainers": [{"name": "i", "ports": [{"containerPort": 7, "hostPort": 8007}]}],
      "containers": [{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 16301,
                      "hostPort": 16301, "name": "paceline-http"}]}, {"name": "d"}]})");
  json meta = {{"name", "p"}};
  const auto other = project_pod(json{{"metadata", meta}, {"spec", spec}}.dump());
  ASSERT_TRUE(other);
  EXPECT_EQ(other->host_ports, (std::vector<std::uint16_t>{16301, 8007}));
  EXPECT_EQ(other->requests.port_blocks, 1000) << "8007 is in no block";
  const json owner = {{"kind", "TrainingJob"}, {"uid", "u"}, {"controller", true}};
  meta["labels"] = {{"paceline.dev/job-uid", "u"}};
  meta["ownerReferences"] = json::array({owner});
  const auto ours = project_pod(json{{"metadata", meta}, {"spec", spec}}.dump());
  ASSERT_TRUE(ours && ours->gang);
  EXPECT_EQ(ours->gang->http_port, 16301);
  const auto usual = project_pod(json{{"metadata", meta}}.dump());
  ASSERT_TRUE(usual && usual->gang);
  EXPECT_EQ(usual->gang->http_port, 29401);
}

TEST(Views, NumbersOfLabelsThatNobodyWritesAreNone) {
  const json owner = {{"kind", "TrainingJob"}, {"uid", "u"}, {"name", "j"}, {"controller", true}};
  for (const char* rank : {"-2147483648", "-1", "99999999999", "x", ""}) {
    json meta = {{"name", "p"}, {"ownerReferences", json::array({owner})}};
    meta["labels"] = {{"paceline.dev/placeholder-for", "j"},
                      {"paceline.dev/placeholder-rank", rank}};
    const auto held = project_pod(json{{"metadata", meta}}.dump());
    ASSERT_TRUE(held && held->placeholder);
    EXPECT_EQ(held->placeholder->rank, -1) << rank;
    meta["labels"] = {{"paceline.dev/job-uid", "u"}, {"paceline.dev/node-rank", rank}};
    const auto member = project_pod(json{{"metadata", meta}}.dump());
    ASSERT_TRUE(member && member->gang);
    EXPECT_EQ(member->gang->node_rank, -1) << rank;
  }
}

TEST(Views, APodTakesEachBlockOfItsNodeThatItHasAPortOf) {
  const json spec = json::parse(R"({"containers": [{"name": "c", "ports": [
      {"hostPort": 16000}, {"hostPort": 16001}, {"hostPort": 16100}, {"hostPort": 19999},
      {"hostPort": 15999}, {"hostPort": 20000}, {"containerPort": 16200}]}]})");
  const auto pod = project_pod(json{{"metadata", {{"name", "p"}}}, {"spec", spec}}.dump());
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->requests.port_blocks, 3000);
  EXPECT_EQ(project_node(node("n"))->allocatable.port_blocks, 40'000);
}

TEST(Views, APodWhosePortsItsNodeLacksIsNotTheJobsFault) {
  const json owner = {{"kind", "TrainingJob"}, {"uid", "u"}, {"controller", true}};
  const json meta = {{"name", "p"},
                     {"labels", {{"paceline.dev/job-uid", "u"}}},
                     {"ownerReferences", json::array({owner})}};
  const json status = {{"phase", "Failed"}, {"reason", "NodePorts"}};
  const auto pod = project_pod(json{{"metadata", meta}, {"status", status}}.dump());
  ASSERT_TRUE(pod && pod->gang);
  EXPECT_TRUE(pod->gang->disrupted);
}

json owned(json labels, const char* settings = nullptr) {
  const json owner = {{"kind", "TrainingJob"}, {"uid", "u"}, {"name", "a"}, {"controller", true}};
  json pod = {{"metadata",
               {{"name", "a-w-3-2"},
                {"labels", std::move(labels)},
                {"ownerReferences", json::array({owner})}}}};
  if (settings == nullptr) return pod;
  const json variable = {{"name", "PACELINE_SETTINGS"}, {"value", settings}};
  pod["spec"]["containers"] = json::array({{{"name", "trainer"}, {"env", {variable}}}});
  return pod;
}

TEST(Views, APodStaysInItsGangWhateverLabelsPeopleRemove) {
  const auto pod = project_pod(owned(nullptr, R"({"NODE_RANK":"5","ROLE":"w"})").dump());
  ASSERT_TRUE(pod && pod->gang);
  EXPECT_EQ(pod->gang->job_uid, "u");
  EXPECT_EQ(pod->gang->job_name, "a");
  EXPECT_EQ(pod->gang->node_rank, 5);
  EXPECT_EQ(pod->gang->incarnation, 2);
  const auto labelled = project_pod(
      owned({{"paceline.dev/node-rank", "1"}, {"paceline.dev/incarnation", "7"}}).dump());
  ASSERT_TRUE(labelled && labelled->gang);
  EXPECT_EQ(labelled->gang->node_rank, 1);
  EXPECT_EQ(labelled->gang->incarnation, 7);
}

TEST(Views, APodThatTellsItsRankNowhereHasNone) {
  for (const char* settings :
       {static_cast<const char*>(nullptr), "{}", "[1]", "x", R"({"NODE_RANK":5})"}) {
    const auto pod = project_pod(owned(json::object(), settings).dump());
    ASSERT_TRUE(pod && pod->gang);
    EXPECT_EQ(pod->gang->node_rank, -1);
  }
}

TEST(Views, APlaceholderIsOfNoGang) {
  const auto pod = project_pod(owned({{"paceline.dev/placeholder-for", "a"}}).dump());
  ASSERT_TRUE(pod);
  EXPECT_FALSE(pod->gang);
  EXPECT_TRUE(pod->placeholder);
}

TEST(Views, ANodeThatHasLessThanItOfferedIsNotTheJobsFault) {
  for (const char* reason : {"OutOfcpu", "OutOfnvidia.com/gpu", "OutOfephemeral-storage"}) {
    json document = owned(json::object());
    document["status"] = {{"phase", "Failed"}, {"reason", reason}};
    const auto pod = project_pod(document.dump());
    ASSERT_TRUE(pod && pod->gang);
    EXPECT_TRUE(pod->gang->disrupted) << reason;
  }
}

TEST(Views, AContainerThatIsGoneWithItsNodeIsNotTheJobsFault) {
  json document = owned(json::object());
  const json killed = {{"terminated", {{"exitCode", 137}, {"reason", "ContainerStatusUnknown"}}}};
  const json container = {{"name", "trainer"}, {"state", killed}};
  const json launcher = {{"name", "trainer"}, {"command", {"/opt/paceline/bin/paceline-launcher"}}};
  document["spec"]["containers"] = json::array({launcher});
  document["status"] = {{"phase", "Failed"}, {"containerStatuses", json::array({container})}};
  const auto pod = project_pod(document.dump());
  ASSERT_TRUE(pod && pod->gang);
  EXPECT_TRUE(pod->gang->disrupted);
}

json condition(const char* type, const char* status, const char* reason = "") {
  return {{"type", type}, {"status", status}, {"reason", reason}};
}

TEST(Views, ConditionsAreKeptThatNotEveryObjectHas) {
  const json of_node = {condition("Ready", "Unknown", "NodeStatusUnknown"),
                        condition("DiskPressure", "False"), condition("GpuHealthy", "False")};
  const auto node = project_node(json{{"status", {{"conditions", of_node}}}}.dump());
  ASSERT_TRUE(node);
  const std::vector<failure::Condition> silent{{"Ready", "Unknown", "NodeStatusUnknown"},
                                               {"GpuHealthy", "False", ""}};
  EXPECT_EQ(node->conditions, silent);

  const json owner = {{"kind", "TrainingJob"}, {"uid", "u"}, {"controller", true}};
  const json of_pod = {condition("Ready", "False"),
                       condition("DisruptionTarget", "True", "PreemptionByScheduler")};
  const json meta = {{"name", "p"},
                     {"labels", {{"paceline.dev/job-uid", "u"}}},
                     {"ownerReferences", json::array({owner})}};
  const auto pod =
      project_pod(json{{"metadata", meta}, {"status", {{"conditions", of_pod}}}}.dump());
  ASSERT_TRUE(pod && pod->gang);
  const std::vector<failure::Condition> preempted{
      {"DisruptionTarget", "True", "PreemptionByScheduler"}};
  EXPECT_EQ(pod->gang->conditions, preempted);
}

TEST(Views, ADisruptedPodEndedForItsDisruption) {
  const json meta = {
      {"name", "p"},
      {"labels", {{"paceline.dev/job-uid", "u"}}},
      {"ownerReferences",
       json::array({{{"kind", "TrainingJob"}, {"uid", "u"}, {"controller", true}}})}};
  const json killed = {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}};
  const json containers = json::array({{{"name", "trainer"}, {"state", killed}}});
  const struct {
    json conditions;
    const char* pod_reason;
    const char* expected;
  } cases[] = {
      {json::array(), "", "OOMKilled"},
      {{condition("DisruptionTarget", "True", "PreemptionByScheduler")},
       "",
       "PreemptionByScheduler"},
      {{condition("DisruptionTarget", "True", "TerminationByKubelet")}, "Evicted", "Evicted"},
  };
  for (const auto& [conditions, pod_reason, expected] : cases) {
    const json status = {
        {"conditions", conditions}, {"containerStatuses", containers}, {"reason", pod_reason}};
    const json spec = {
        {"containers", json::array({{{"name", "trainer"},
                                     {"command", {"/opt/paceline/bin/paceline-launcher"}}}})}};
    const auto pod =
        project_pod(json{{"metadata", meta}, {"spec", spec}, {"status", status}}.dump());
    ASSERT_TRUE(pod && pod->gang);
    EXPECT_EQ(pod->gang->reason, expected);
  }
}

}  // namespace
}  // namespace paceline::observe
