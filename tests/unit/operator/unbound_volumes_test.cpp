// SPDX-License-Identifier: Apache-2.0
// Gangs whose claims have no volume yet: claims that wait for a pod (WaitForFirstConsumer) and
// claims of a pod's own (generic ephemeral volumes).
#include <gtest/gtest.h>

#include "operator/plan/placement/unbound.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline {
namespace {

using nlohmann::json;
using nlohmann::literals::operator""_json_pointer;
using std::chrono::minutes;
using std::chrono::seconds;

const json kByHand = {{"metadata", {{"name", "local"}}},
                      {"provisioner", "kubernetes.io/no-provisioner"},
                      {"volumeBindingMode", "WaitForFirstConsumer"}};
const json kOnDemand = {{"metadata", {{"name", "local"}}},
                        {"provisioner", "disk"},
                        {"volumeBindingMode", "WaitForFirstConsumer"}};

json asked(const char* mode = "ReadWriteOnce") {
  return {{"storageClassName", "local"},
          {"accessModes", {mode}},
          {"resources", {{"requests", {{"storage", "10Gi"}}}}}};
}

json waiting_claim(const char* mode = "ReadWriteOnce") {
  return {{"metadata", {{"name", "data"}, {"namespace", "default"}}},
          {"spec", asked(mode)},
          {"status", {{"phase", "Pending"}}}};
}

json within_reach_of(const std::string& node) {
  json terms = json::parse(R"({"nodeSelectorTerms": [{"matchExpressions": [
      {"key": "kubernetes.io/hostname", "operator": "In", "values": []}]}]})");
  terms["/nodeSelectorTerms/0/matchExpressions/0/values"_json_pointer].push_back(node);
  return terms;
}

json free_volume(const std::string& node) {
  return {{"metadata", {{"name", "pv-" + node}}},
          {"spec",
           {{"storageClassName", "local"},
            {"accessModes", {"ReadWriteOnce"}},
            {"capacity", {{"storage", "10Gi"}}},
            {"nodeAffinity", {{"required", within_reach_of(node)}}}}},
          {"status", {{"phase", "Available"}}}};
}

json by_name() { return {{"name", "d"}, {"persistentVolumeClaim", {{"claimName", "data"}}}}; }

json own() {
  return {{"name", "d"}, {"ephemeral", {{"volumeClaimTemplate", {{"spec", asked()}}}}}};
}

class UnboundVolumes : public testing::Test {
 protected:
  /// Node `name`, with a label that says so.
  void add_node(const std::string& name, int cpus = 8) {
    bench.add_node(name, cpus, {{"kubernetes.io/hostname", name}});
  }
  void add_volume(const json& volume) { bench.create(kube::kPersistentVolumes, "", volume); }
  void add_class(const json& storage_class) {
    bench.create(kube::kStorageClasses, "", storage_class);
  }
  void add_claim(const char* mode = "ReadWriteOnce") {
    bench.create(kube::kPersistentVolumeClaims, "default", waiting_claim(mode));
  }
  /// A job of two pods with a CPU each.
  void add_job(const json& volume, const json& scheduling = json::object()) {
    const json container = {{"name", "trainer"},
                            {"image", "i"},
                            {"command", {"train"}},
                            {"resources", {{"requests", {{"cpu", 1}}}}}};
    const json pod = {{"volumes", json::array({volume})}, {"containers", json::array({container})}};
    bench.add_job(
        "j",
        {{"roles", json::array({{{"name", "w"}, {"replicas", 2}, {"template", {{"spec", pod}}}}})},
         {"scheduling", scheduling}});
    bench.settle();
  }
  std::string reason() { return bench.job("j")["status"].value("reason", ""); }
  std::string message() { return bench.job("j")["status"].value("message", ""); }
  std::vector<std::string> nodes() {
    std::vector<std::string> names;
    for (const json& pod : bench.pods("j")) names.push_back(pod["spec"].value("nodeName", ""));
    return names;
  }
  static std::vector<std::string> both_on(const std::string& node) { return {node, node}; }

  apply::ControllerBench bench;
};

TEST_F(UnboundVolumes, AClaimThatWaitsForItsPodGoesWhereAVolumeIsFree) {
  add_node("n0");
  add_node("n1");
  add_class(kByHand);
  add_volume(free_volume("n1"));
  add_claim();
  add_job(by_name());
  EXPECT_EQ(nodes(), both_on("n1")) << message();
}

TEST_F(UnboundVolumes, AReplacementGoesWhereTheVolumeIsThatTheClaimHasGot) {
  add_node("n0");
  add_node("n1");
  add_class(kByHand);
  add_volume(free_volume("n0"));
  add_volume(free_volume("n1"));
  add_claim();
  add_job(by_name());
  ASSERT_EQ(nodes().size(), 2U) << message();
  const std::string node = nodes()[0];
  bench.cluster().poke(
      kube::kPersistentVolumeClaims, "default", "data",
      json{{"spec", {{"volumeName", "pv-" + node}}}, {"status", {{"phase", "Bound"}}}}.dump());
  bench.advance(minutes(1));
  bench.cluster().poke(kube::kNodes, "", node, R"({"spec":{"unschedulable":true}})");
  bench.cluster().erase(kube::kPods, "default", "j-w-1-0");
  bench.settle();
  EXPECT_EQ(nodes().size(), 1U);
  EXPECT_EQ(reason(), "WaitingForNode") << message();
  bench.cluster().poke(kube::kNodes, "", node, R"({"spec":{"unschedulable":null}})");
  bench.settle();
  EXPECT_EQ(nodes(), both_on(node)) << message();
}

TEST_F(UnboundVolumes, WithoutAFreeVolumeTheJobWaitsAndSaysSo) {
  add_node("n0");
  add_class(kByHand);
  json taken = free_volume("n0");
  taken["status"]["phase"] = "Bound";
  add_volume(taken);
  add_claim();
  add_job(by_name());
  EXPECT_EQ(reason(), "NoFreeVolume");
  EXPECT_EQ(message(),
            "spec.roles[0].template.spec.volumes[0].persistentVolumeClaim.claimName: StorageClass "
            "\"local\" makes no volumes, and no PersistentVolume of it is free for "
            "PersistentVolumeClaim \"data\"; create one that fits, or name another StorageClass");
  EXPECT_TRUE(bench.pods("j").empty());
  json fresh = free_volume("n0");
  fresh["metadata"]["name"] = "fresh";
  add_volume(fresh);
  bench.advance(minutes(1));
  EXPECT_EQ(nodes(), both_on("n0")) << message();
}

TEST_F(UnboundVolumes, AVolumeThatComesWhereThereIsRoomStartsTheJob) {
  add_node("n0");
  add_node("full", 1);
  add_class(kByHand);
  add_volume(free_volume("full"));
  add_claim();
  add_job(by_name());
  EXPECT_EQ(reason(), "TooLarge");
  EXPECT_NE(message().find("1 out of reach of a volume"), std::string::npos) << message();
  add_volume(free_volume("n0"));
  bench.advance(seconds(20));
  EXPECT_EQ(nodes(), both_on("n0")) << message();
}

TEST_F(UnboundVolumes, AVolumeThatGoesWhileTheJobWaitsForRoomMovesItElsewhere) {
  add_node("n0", 2);
  add_node("n1", 2);
  bench.add_job("first");  // fills a node
  bench.settle();
  const std::string used = bench.pods("first")[0]["spec"]["nodeName"];
  const std::string other = used == "n0" ? "n1" : "n0";
  add_class(kByHand);
  add_volume(free_volume(used));
  add_claim();
  add_job(by_name());
  EXPECT_EQ(reason(), "WaitingForRoom") << message();
  bench.cluster().erase(kube::kPersistentVolumes, "", "pv-" + used);
  add_volume(free_volume(other));
  // the room that the job waits for, on the node that has lost its volume
  bench.finish("first");
  bench.advance(seconds(20));
  EXPECT_EQ(nodes(), both_on(other)) << message();
}

TEST_F(UnboundVolumes, AClassThatMakesVolumesAllowsTheNodesOfItsTopologies) {
  add_node("n0");
  add_node("n1");
  json storage_class = kOnDemand;
  storage_class["allowedTopologies"] = json::parse(
      R"([{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["n1"]}]}])");
  add_class(storage_class);
  add_claim();
  add_job(by_name());
  EXPECT_EQ(nodes(), both_on("n1")) << message();
}

TEST_F(UnboundVolumes, AClassThatMakesVolumesAllowsEveryNodeOtherwise) {
  add_node("n0");
  add_class(kOnDemand);
  add_claim();
  add_job(by_name());
  EXPECT_EQ(nodes(), both_on("n0")) << message();
}

TEST_F(UnboundVolumes, APodsOwnClaimGoesWhereAVolumeIsFree) {
  add_node("n0");
  add_node("n1");
  add_class(kByHand);
  add_volume(free_volume("n1"));
  add_job(own());
  EXPECT_EQ(nodes(), both_on("n1")) << message();
  EXPECT_EQ(bench.pods("j")[0]["spec"]["volumes"][0], own());
}

TEST_F(UnboundVolumes, APodsOwnClaimMayHaveOnePodEach) {
  add_node("n0");
  add_class(kOnDemand);
  json volume = own();
  volume["ephemeral"]["volumeClaimTemplate"]["spec"]["accessModes"] = {"ReadWriteOncePod"};
  add_job(volume);
  EXPECT_EQ(nodes(), both_on("n0")) << message();
}

TEST_F(UnboundVolumes, APodsOwnClaimMayLeaveTheClassToTheCluster) {
  add_node("n0");
  json volume = own();
  volume["ephemeral"]["volumeClaimTemplate"]["spec"].erase("storageClassName");
  add_job(volume);
  EXPECT_EQ(nodes(), both_on("n0")) << message();
}

TEST_F(UnboundVolumes, AClassThatDoesNotExistIsNamed) {
  add_node("n0");
  add_job(own());
  EXPECT_EQ(reason(), "NoFreeVolume");
  EXPECT_EQ(
      message(),
      "spec.roles[0].template.spec.volumes[0].ephemeral.volumeClaimTemplate: StorageClass "
      "\"local\" does not exist, and no PersistentVolume of it is free for the claim of a new "
      "pod; create one that fits, or name another StorageClass");
}

TEST_F(UnboundVolumes, AnotherSchedulerFindsTheVolumeItself) {
  add_node("n0");
  add_class(kByHand);
  add_claim();
  add_job(by_name(), {{"backend", "Volcano"}});
  EXPECT_NE(reason(), "NoFreeVolume") << message();
  EXPECT_EQ(bench.pods("j").size(), 2U) << message();
}

TEST_F(UnboundVolumes, ADiskOfOneNodeIsRefusedBeforeItIsMade) {
  bench.create(kube::kCsiDrivers, "",
               {{"metadata", {{"name", "disk"}}}, {"spec", {{"attachRequired", true}}}});
  for (const char* name : {"n0", "n1"}) add_node(name);
  add_class(kOnDemand);
  add_claim();
  add_job(by_name(), {{"podsPerNode", 1}});
  EXPECT_EQ(reason(), "VolumeReadWriteOnce");
  EXPECT_NE(message().find("give each pod one of its own (volumes[].ephemeral)"), std::string::npos)
      << message();
}

TEST_F(UnboundVolumes, AProvisionerThatIsNoDriverMayMakeVolumesForAllNodes) {
  for (const char* name : {"n0", "n1"}) add_node(name);
  add_class(kOnDemand);
  add_claim();
  add_job(by_name(), {{"podsPerNode", 1}});
  EXPECT_EQ(nodes().size(), 2U) << message();
}

TEST_F(UnboundVolumes, AClaimOfOnePodIsRefusedBeforeItIsBound) {
  add_node("n0");
  add_class(kByHand);
  json volume = free_volume("n0");
  volume["spec"]["accessModes"] = {"ReadWriteOncePod"};
  add_volume(volume);
  add_claim("ReadWriteOncePod");
  add_job(by_name());
  EXPECT_EQ(reason(), "VolumeReadWriteOncePod") << message();
}

TEST(MayTake, WhatKubernetesCompares) {
  const json kept = {{"namespace", "default"}, {"name", "data"}};
  json former = kept;
  former["uid"] = "gone";
  struct Case {
    const char* pointer;
    json value;
    bool fits;
  };
  const Case cases[] = {
      {"/spec/volumeMode", "Filesystem", true},
      {"/spec/volumeMode", "Block", false},
      {"/spec/capacity/storage", "11Gi", true},
      {"/spec/capacity/storage", "9Gi", false},
      {"/spec/storageClassName", "other", false},
      {"/spec/accessModes", {"ReadOnlyMany", "ReadWriteOnce"}, true},
      {"/spec/accessModes", {"ReadOnlyMany"}, false},
      {"/status/phase", "Released", false},
      {"/spec/claimRef", kept, true},
      {"/spec/claimRef", {{"namespace", "other"}, {"name", "data"}}, false},
      {"/spec/claimRef", former, false},
      {"/metadata/deletionTimestamp", "2026-01-01T00:00:00Z", false},
      {"/metadata/labels", {{"disk", "fast"}}, true},
  };
  for (const Case& test : cases) {
    json volume = free_volume("n0");
    volume[json::json_pointer(test.pointer)] = test.value;
    EXPECT_EQ(plan::may_take(waiting_claim(), volume), test.fits)
        << test.pointer << " " << test.value.dump();
  }
  json of_pod = {{"spec", asked()}};
  json volume = free_volume("n0");
  volume["spec"]["claimRef"] = kept;
  EXPECT_FALSE(plan::may_take(of_pod, volume));

  json choosy = waiting_claim();
  choosy["spec"]["selector"] = {{"matchLabels", {{"disk", "fast"}}}};
  volume = free_volume("n0");
  EXPECT_FALSE(plan::may_take(choosy, volume));
  volume["metadata"]["labels"] = {{"disk", "slow"}};
  EXPECT_FALSE(plan::may_take(choosy, volume));
  volume["metadata"]["labels"] = {{"disk", "fast"}};
  EXPECT_TRUE(plan::may_take(choosy, volume));
}

TEST(AnyOf, NamesOfNodesAreOneList) {
  const auto in = [](const std::string& key, const std::string& value) {
    return plan::NodeTerms{{{key, "In", {value}}}};
  };
  EXPECT_EQ(plan::any_of({in("host", "a"), in("host", "b"), in("host", "a")}),
            (plan::NodeTerms{{{"host", "In", {"a", "b"}}}}));
  EXPECT_EQ(plan::any_of({in("host", "a"), in("zone", "z")}),
            (plan::NodeTerms{{{"host", "In", {"a"}}}, {{"zone", "In", {"z"}}}}));
  // Two requirements in one term hold together.
  const plan::NodeTerms two = {{{"host", "In", {"a"}}, {"zone", "In", {"z"}}}};
  EXPECT_EQ(plan::any_of({in("host", "b"), two}),
            (plan::NodeTerms{{{"host", "In", {"b"}}}, two.front()}));
  EXPECT_EQ(plan::any_of({in("host", "a"), {}}), plan::NodeTerms()) << "one is reached by all";
}

}  // namespace
}  // namespace paceline
