// SPDX-License-Identifier: Apache-2.0
// Gangs that mount PersistentVolumeClaims: claims that prevent placement are refused by name, and
// bound volumes limit the nodes.
#include "operator/plan/placement/volumes.hpp"

#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline {
namespace {

using nlohmann::json;
using std::chrono::minutes;

json claim(const char* phase, const char* storage_class, const char* volume = "") {
  json object = {
      {"metadata", {{"name", "data"}}}, {"spec", json::object()}, {"status", {{"phase", phase}}}};
  if (*storage_class != '\0') object["spec"]["storageClassName"] = storage_class;
  if (*volume != '\0') object["spec"]["volumeName"] = volume;
  return object;
}

json storage_class(const char* mode) {
  return {{"metadata", {{"name", "local"}}}, {"volumeBindingMode", mode}};
}

json mounting(const std::string& name) {
  return {{"roles",
           json::array(
               {{{"name", "w"},
                 {"replicas", 2},
                 {"template",
                  {{"spec",
                    {{"volumes", json::array({{{"name", "scratch"}, {"emptyDir", json::object()}},
                                              {{"name", "d"},
                                               {"persistentVolumeClaim", {{"claimName", name}}}}})},
                     {"containers",
                      json::array({{{"name", "trainer"},
                                    {"image", "i"},
                                    {"command", {"train"}},
                                    {"resources", {{"requests", {{"cpu", 1}}}}}}})}}}}}}})}};
}

TEST(Volumes, EveryStateOfAClaim) {
  json going = claim("Bound", "local", "pv");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  struct Case {
    json claim, storage_class;
    const char* reason;
    const char* says;
  };
  const Case cases[] = {
      {claim("Bound", "local", "pv"), nullptr, "", ""},
      {nullptr, nullptr, "VolumeClaimNotFound", "does not exist in namespace research; create it"},
      {going, nullptr, "VolumeClaimNotFound", "is being deleted"},
      {claim("Lost", "local", "pv"), nullptr, "VolumeClaimLost",
       "has lost its PersistentVolume pv"},
      {claim("Pending", ""), nullptr, "VolumeClaimUnbound", "names no StorageClass"},
      {claim("Pending", "local"), storage_class("WaitForFirstConsumer"), "", ""},
      {claim("Pending", "local"), storage_class("Immediate"), "VolumeClaimUnbound",
       "`kubectl describe pvc data -n research`"},
      {claim("Pending", "by-hand"), nullptr, "VolumeClaimUnbound", "is not bound yet"},
      {json::array(), nullptr, "VolumeClaimUnbound", ""},
  };
  for (const Case& test : cases) {
    const auto refused =
        plan::claim_refusal({"spec.here", "data"}, "research", test.claim, test.storage_class);
    EXPECT_EQ(refused ? refused->reason : "", test.reason) << test.claim.dump();
    if (!refused) continue;
    EXPECT_TRUE(refused->message.starts_with("spec.here: PersistentVolumeClaim \"data\" "))
        << refused->message;
    EXPECT_NE(refused->message.find(test.says), std::string::npos) << refused->message;
  }
}

TEST(Volumes, AMissingClaimIsNamedAndItsArrivalStartsTheJob) {
  apply::ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j", mounting("data"));
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Queued");
  EXPECT_EQ(bench.job("j")["status"]["reason"], "VolumeClaimNotFound");
  EXPECT_EQ(bench.job("j")["status"]["message"],
            "spec.roles[0].template.spec.volumes[1].persistentVolumeClaim.claimName: "
            "PersistentVolumeClaim \"data\" "
            "does not exist in namespace default; create it, or name one that exists");
  EXPECT_TRUE(bench.pods("j").empty());
  const std::uint64_t writes = bench.writes();
  for (int i = 0; i < 5; ++i) bench.advance(minutes(2));
  EXPECT_EQ(bench.writes(), writes) << "asking again is no reason to write";
  bench.create(kube::kPersistentVolumeClaims, "default", claim("Bound", "local", "pv"));
  bench.advance(minutes(1));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
}

TEST(Volumes, AClaimIsWaitedForUntilBoundAndThenChoosesTheNode) {
  apply::ControllerBench bench;
  bench.add_node("n0", 4, {{"kubernetes.io/hostname", "n0"}});
  bench.add_node("n1", 4, {{"kubernetes.io/hostname", "n1"}});
  bench.create(kube::kStorageClasses, "", storage_class("Immediate"));
  bench.create(kube::kPersistentVolumeClaims, "default", claim("Pending", "local"));
  bench.add_job("j", mounting("data"));
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["reason"], "VolumeClaimUnbound");
  EXPECT_TRUE(bench.pods("j").empty());

  const json on_n1 = json::parse(R"({"nodeSelectorTerms": [{"matchExpressions": [
      {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]})");
  bench.create(
      kube::kPersistentVolumes, "",
      {{"metadata", {{"name", "pv"}}}, {"spec", {{"nodeAffinity", {{"required", on_n1}}}}}});
  bench.cluster().poke(kube::kPersistentVolumeClaims, "default", "data",
                       claim("Bound", "local", "pv").dump());
  bench.advance(minutes(1));
  ASSERT_EQ(bench.pods("j").size(), 2U) << bench.job("j")["status"].dump(1);
  for (const json& pod : bench.pods("j")) EXPECT_EQ(pod["spec"]["nodeName"], "n1");

  // A new process does not know the volume yet when it looks for the replacement's node.
  bench.restart_operator();
  bench.cluster().erase(kube::kPods, "default", "j-w-1-0");
  bench.add_node("n2", 16, {{"kubernetes.io/hostname", "n2"}});
  bench.cluster().poke(kube::kNodes, "", "n1", R"({"spec":{"unschedulable":true}})");
  bench.settle();
  EXPECT_EQ(bench.pods("j").size(), 1U);
  EXPECT_EQ(bench.job("j")["status"]["reason"], "WaitingForNode")
      << bench.job("j")["status"].dump(1);
  bench.cluster().poke(kube::kNodes, "", "n1", R"({"spec":{"unschedulable":null}})");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U) << bench.job("j")["status"].dump(1);
  EXPECT_EQ(bench.pods("j")[1]["spec"]["nodeName"], "n1");
}

TEST(Volumes, AClaimThatGoesWhileTheJobWaitsStopsItBeforeAnyPod) {
  apply::ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kPersistentVolumeClaims, "default", claim("Bound", "local", "pv"));
  bench.add_job("first");
  bench.settle();
  bench.add_job("j", mounting("data"));
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["reason"], "WaitingForRoom")
      << bench.job("j")["status"].dump(1);
  bench.add_job("next");
  bench.settle();
  ASSERT_EQ(bench.job("next")["status"]["reason"], "WaitingForRoom");
  bench.cluster().erase(kube::kPersistentVolumeClaims, "default", "data");
  bench.finish("first");
  EXPECT_EQ(bench.job("j")["status"]["reason"], "VolumeClaimNotFound")
      << bench.job("j")["status"].dump(1);
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_EQ(bench.job("next")["status"]["phase"], "Running")
      << "the room of the dropped placement is free: " << bench.job("next")["status"].dump(1);
}

TEST(Volumes, AGangThatFitsOnlyOutOfReachWaitsAndSaysSo) {
  apply::ControllerBench bench;
  bench.add_node("n0", 8, {{"zone", "a"}});
  bench.add_node("n1", 1, {{"zone", "b"}});
  const json in_b = json::parse(
      R"({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]})");
  bench.create(
      kube::kPersistentVolumes, "",
      {{"metadata", {{"name", "pv"}}}, {"spec", {{"nodeAffinity", {{"required", in_b}}}}}});
  bench.create(kube::kPersistentVolumeClaims, "default", claim("Bound", "local", "pv"));
  bench.add_job("j", mounting("data"));
  bench.settle();
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_EQ(bench.job("j")["status"]["reason"], "TooLarge");
  EXPECT_NE(
      bench.job("j")["status"]["message"].get<std::string>().find("1 out of reach of a volume"),
      std::string::npos)
      << bench.job("j")["status"]["message"];
}

json shared(const char* mode, const json& source) {
  json volume = {{"metadata", {{"name", "pv"}}}, {"spec", source}};
  volume["spec"]["accessModes"] = json::array({mode});
  return volume;
}

json of_csi(const char* driver) { return {{"csi", {{"driver", driver}}}}; }

TEST(Volumes, WhatKubernetesEnforcesOfAccessModes) {
  const json required = {{"spec", {{"attachRequired", true}}}};
  const json not_required = {{"spec", {{"attachRequired", false}}}};
  const json local = {{"hostPath", {{"path", "/data"}}}};
  const json nfs = {{"nfs", {{"server", "nfs"}}}};
  const json block = {{"iscsi", {{"lun", 0}}}};
  struct Case {
    const char* mode;
    json source, driver;
    plan::Sharing sharing;
  };
  const Case cases[] = {
      {"ReadWriteOnce", of_csi("disk"), required, plan::Sharing::kOneNode},
      {"ReadWriteOnce", of_csi("disk"), nullptr, plan::Sharing::kOneNode},
      {"ReadWriteOnce", of_csi("files"), not_required, plan::Sharing::kAny},
      {"ReadWriteMany", of_csi("disk"), required, plan::Sharing::kAny},
      {"ReadOnlyMany", of_csi("disk"), required, plan::Sharing::kAny},
      {"ReadWriteOnce", block, nullptr, plan::Sharing::kOneNode},
      {"ReadWriteOnce", nfs, nullptr, plan::Sharing::kAny},
      {"ReadWriteOnce", local, nullptr, plan::Sharing::kAny},
      {"ReadWriteOncePod", local, nullptr, plan::Sharing::kOnePod},
  };
  for (const Case& test : cases) {
    json bound = claim("Bound", "local", "pv");
    bound["spec"]["accessModes"] = json::array({test.mode});
    EXPECT_EQ(plan::sharing_of(bound, shared(test.mode, test.source), test.driver), test.sharing)
        << test.mode << " " << test.source.dump() << " " << test.driver.dump();
  }
}

/// A job of two pods that mount the claim, whose volume is a disk.
class SharedVolume : public testing::Test {
 protected:
  void place(const char* mode, int cpus_of_a_node, int pods_per_node = 9) {
    for (const char* node : {"n0", "n1", "n2"}) bench.add_node(node, cpus_of_a_node);
    json bound = claim("Bound", "local", "pv");
    bound["spec"]["accessModes"] = json::array({mode});
    bench.create(kube::kPersistentVolumeClaims, "default", bound);
    bench.create(kube::kPersistentVolumes, "", shared(mode, of_csi("disk")));
    json spec = mounting("data");
    spec["scheduling"] = {{"podsPerNode", pods_per_node}};
    bench.add_job("j", spec);
    bench.settle();
  }
  std::string reason() { return bench.job("j")["status"].value("reason", ""); }
  std::string message() { return bench.job("j")["status"].value("message", ""); }

  apply::ControllerBench bench;
};

TEST_F(SharedVolume, OfOneNodeIsRefusedByNameIfNoNodeHoldsAllPods) {
  place("ReadWriteOnce", 1);
  EXPECT_EQ(reason(), "VolumeReadWriteOnce");
  EXPECT_EQ(message(),
            "spec.roles[0].template.spec.volumes[1].persistentVolumeClaim.claimName: "
            "PersistentVolumeClaim \"data\" has access mode ReadWriteOnce, so its volume is "
            "attached to one node at a time, but 2 pods of this job mount it, and no node is large "
            "enough for all of them; use a claim with ReadWriteMany or ReadOnlyMany, or give each "
            "pod one of its own (volumes[].ephemeral)");
  EXPECT_TRUE(bench.pods("j").empty());
  const std::uint64_t writes = bench.writes();
  for (int i = 0; i < 5; ++i) bench.advance(minutes(2));
  EXPECT_EQ(bench.writes(), writes);
  bench.add_node("large", 4);
  bench.advance(minutes(2));
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << message();
}

TEST_F(SharedVolume, OfOneNodeIsRefusedIfEachPodHasANodeOfItsOwn) {
  place("ReadWriteOnce", 8, 1);
  EXPECT_EQ(reason(), "VolumeReadWriteOnce");
  EXPECT_NE(message().find("spec.scheduling.podsPerNode is 1"), std::string::npos) << message();
}

TEST_F(SharedVolume, OfOneNodeIsTakenIfANodeMayHoldAllPods) {
  place("ReadWriteOnce", 8);
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << message();
}

TEST_F(SharedVolume, OfManyNodesIsTaken) {
  place("ReadWriteMany", 1, 1);
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << message();
}

TEST_F(SharedVolume, OfOnePodIsRefused) {
  place("ReadWriteOncePod", 8);
  EXPECT_EQ(reason(), "VolumeReadWriteOncePod");
  EXPECT_NE(message().find("so one pod can use it, but 2 pods of this job mount it"),
            std::string::npos)
      << message();
}

TEST_F(SharedVolume, IsTakenIfTheDriverAttachesNothing) {
  bench.create(kube::kCsiDrivers, "",
               {{"metadata", {{"name", "disk"}}}, {"spec", {{"attachRequired", false}}}});
  place("ReadWriteOnce", 1);
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << message();
}

}  // namespace
}  // namespace paceline
