// SPDX-License-Identifier: Apache-2.0
// spec.topology of jobs in Kueue's queues: what their Workloads ask of Kueue's Topologies.
#include <gtest/gtest.h>

#include "common/kube/api/kueue.hpp"
#include "operator/observe/topology_labels.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kRack = "example.com/rack";
constexpr const char* kBlock = "example.com/block";
constexpr const char* kHost = "kubernetes.io/hostname";

/// A flavor, and the labels of its Topology from the widest; none: it has no Topology.
struct Flavor {
  std::string name;
  Names labels;
};
const Flavor kGpu{"gpu", {kBlock, kRack, kHost}};

class LevelBench : public ControllerBench {
 public:
  LevelBench() {
    add_node("a", 2, {{"pool", "gpu"}, {kRack, "r1"}, {kBlock, "b1"}});
    add_node("b", 2, {{"pool", "gpu"}, {kRack, "r2"}, {kBlock, "b1"}});
  }
  void add_flavor(const Flavor& flavor) {
    json spec = {{"nodeLabels", {{"pool", "gpu"}}}};
    if (!flavor.labels.empty()) {
      json levels = json::array();
      for (const std::string& label : flavor.labels) levels.push_back({{"nodeLabel", label}});
      create(kube::kTopologies, "",
             {{"metadata", {{"name", flavor.name}}}, {"spec", {{"levels", levels}}}});
      spec["topologyName"] = flavor.name;
    }
    create(kube::kResourceFlavors, "", {{"metadata", {{"name", flavor.name}}}, {"spec", spec}});
  }
  void add_queue() {
    create(kube::kLocalQueues, "default",
           {{"metadata", {{"name", "team"}}}, {"spec", {{"clusterQueue", "all"}}}});
  }
  /// As Kueue does when the ClusterQueue is active.
  void tell_flavors(const Names& names) {
    json flavors = json::array();
    for (const std::string& name : names) flavors.push_back({{"name", name}});
    cluster().poke(kube::kLocalQueues, "default", "team",
                   json{{"status", {{"flavorsReservation", flavors}}}}.dump());
    settle();
  }
  void submit(const json& topology, json spec = json::object()) {
    spec["scheduling"] = {{"queue", "team"}};
    if (!topology.is_null()) spec["topology"] = topology;
    add_job("j", spec);
    settle();
  }
  json workload() {
    const auto all = cluster().objects(kube::kKueueWorkloads);
    return all.empty() ? json() : json::parse(all.front());
  }
  std::string uid() { return workload().value("/metadata/uid"_json_pointer, ""); }
  json request(std::size_t set = 0) {
    return workload()["spec"]["podSets"][set].value("topologyRequest", json::object());
  }
  /// What the Workload asks for: "required LABEL", "preferred LABEL" or nothing.
  std::string asked(std::size_t set = 0) {
    const json all = request(set);
    for (const char* mode : {"required", "preferred"}) {
      if (all.contains(mode)) return mode + (" " + all[mode].get<std::string>());
    }
    return "";
  }
  /// Admits the job. `racks`: by role, the rack of each pod.
  void admit(const std::vector<Names>& racks) {
    json sets = json::array();
    const json asked_for = workload()["spec"]["podSets"];
    for (const json& set : asked_for) {
      const Names& roots = racks[sets.size()];
      const json slice = {{"domainCount", roots.size()},
                          {"valuesPerLevel", json::array({{{"individual", {{"roots", roots}}}}})},
                          {"podCounts", {{"universal", 1}}}};
      sets.push_back({{"name", set["name"]},
                      {"count", roots.size()},
                      {"flavors", {{"cpu", "gpu"}}},
                      {"topologyAssignment",
                       {{"levels", json::array({kRack})}, {"slices", json::array({slice})}}}});
    }
    const json conditions = json::array({is_true("QuotaReserved"), is_true("Admitted")});
    const json status = {{"admission", {{"clusterQueue", "all"}, {"podSetAssignments", sets}}},
                         {"conditions", conditions}};
    cluster().poke(kube::kKueueWorkloads, "default",
                   workload()["metadata"]["name"].get<std::string>(),
                   json{{"status", status}}.dump());
    settle();
  }
  std::string phase() { return job("j")["status"].value("phase", ""); }

 private:
  static json is_true(const char* type) {
    return {{"type", type},
            {"status", "True"},
            {"reason", "Test"},
            {"message", ""},
            {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
  }
};

json role(const char* name, int replicas, const json& limits = json::object()) {
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"limits", limits}}}};
  return {{"name", name},
          {"replicas", replicas},
          {"template", {{"spec", {{"containers", json::array({container})}}}}}};
}

TEST(KueueLevel, ATopologyNamesALevelByOneOfItsLabels) {
  using Level = api::TopologyLevel;
  const Names known = {"topology.kubernetes.io/zone", kBlock, "cloud.provider.com/topology-rack"};
  struct Case {
    Names labels;
    Level level;
    const char* label;
  };
  for (const Case& c :
       {Case{{kBlock, kRack, kHost}, Level::kLeaf, kRack},
        Case{{kBlock, kRack, kHost}, Level::kSpine, kBlock},
        Case{{kBlock, kRack, kHost}, Level::kZone, ""},
        Case{{kBlock, kRack, kHost}, Level::kNvlink, ""},
        Case{known, Level::kLeaf, "cloud.provider.com/topology-rack"},
        Case{known, Level::kSpine, kBlock},
        Case{known, Level::kZone, "topology.kubernetes.io/zone"},
        Case{{kRack, "nvidia.com/gpu.clique"}, Level::kNvlink, "nvidia.com/gpu.clique"},
        Case{{}, Level::kLeaf, ""}}) {
    EXPECT_EQ(observe::label_of_level(c.labels, c.level), c.label);
  }
}

TEST(KueueLevel, IsAskedForOnlyWhereThatExcludesNoFlavor) {
  const std::string longest(63, 'r');
  struct Case {
    const char* name;
    std::vector<Flavor> flavors;
    json topology;
    std::string asked;
  };
  const json leaf = {{"required", "Leaf"}};
  const json both = {{"required", "Spine"}, {"preferred", "Leaf"}};
  for (const Case& c :
       {Case{"no level", {kGpu}, nullptr, ""},
        Case{"a required one", {kGpu}, leaf, "required example.com/rack"},
        Case{"a wider one", {kGpu}, {{"required", "Spine"}}, "required example.com/block"},
        Case{"a preferred one", {kGpu}, {{"preferred", "Leaf"}}, "preferred example.com/rack"},
        Case{"both", {kGpu}, both, "required example.com/block"},
        Case{"both, of which one is named", {{"gpu", {kRack}}}, both, "preferred example.com/rack"},
        Case{"one that is not named", {kGpu}, {{"required", "Zone"}}, ""},
        Case{"a flavor without a topology", {{"gpu", {}}}, leaf, ""},
        Case{"one of two without", {kGpu, {"rest", {}}}, leaf, ""},
        Case{"two of one label", {kGpu, {"rest", {kRack}}}, leaf, "required example.com/rack"},
        Case{"two of other labels", {kGpu, {"rest", {"shelf", kHost}}}, leaf, ""},
        Case{"the longest label", {{"gpu", {longest}}}, leaf, "required " + longest},
        Case{"one that Kueue refuses", {{"gpu", {longest + "r"}}}, leaf, ""}}) {
    SCOPED_TRACE(c.name);
    LevelBench bench;
    Names names;
    for (const Flavor& flavor : c.flavors) {
      bench.add_flavor(flavor);
      names.push_back(flavor.name);
    }
    bench.add_queue();
    bench.tell_flavors(names);
    bench.submit(c.topology);
    EXPECT_EQ(bench.asked(), c.asked);
    EXPECT_EQ(bench.request().empty(), c.asked.empty());
  }
}

TEST(KueueLevel, IsNotAskedForWhereAnotherLabelNamesIt) {
  struct Case {
    const char* name;
    const char* pool;
    const char* label;
    std::string asked;
  };
  for (const Case& c :
       {Case{"on a node of the flavor", "gpu", "paceline.dev/leaf", ""},
        Case{"on another node", "cpu", "paceline.dev/leaf", "required example.com/rack"},
        Case{"another level", "gpu", "paceline.dev/spine", "required example.com/rack"}}) {
    SCOPED_TRACE(c.name);
    LevelBench bench;
    bench.add_node("c", 2, {{"pool", c.pool}, {kRack, "r1"}, {c.label, "mine"}});
    bench.add_flavor(kGpu);
    bench.add_queue();
    bench.tell_flavors({"gpu"});
    bench.submit({{"required", "Leaf"}});
    EXPECT_EQ(bench.asked(), c.asked);
  }
}

TEST(KueueLevel, AnAnnotationOfTheTemplateWins) {
  struct Case {
    const char* annotation;
    const char* value;
    json request;
  };
  for (const Case& c : {Case{"required", kBlock, {{"required", kBlock}}},
                        Case{"preferred", kHost, {{"preferred", kHost}}},
                        Case{"unconstrained", "true", {{"unconstrained", true}}},
                        Case{"unconstrained", "false", json::object()}}) {
    SCOPED_TRACE(c.annotation);
    LevelBench bench;
    bench.add_flavor(kGpu);
    bench.add_queue();
    bench.tell_flavors({"gpu"});
    json annotated = role("w", 2);
    const std::string key = std::string("kueue.x-k8s.io/podset-") + c.annotation + "-topology";
    annotated["template"]["metadata"]["annotations"][key] = c.value;
    bench.submit({{"required", "Leaf"}}, {{"roles", json::array({annotated})}});
    json request = bench.request();
    request.erase("podIndexLabel");
    EXPECT_EQ(request, c.request);
    const std::uint64_t writes = bench.writes();
    bench.restart_operator();
    bench.settle();
    EXPECT_EQ(bench.writes(), writes) << "the Workload needs no change";
  }
}

TEST(KueueLevel, RolesThatMustShareADomainAskTogetherWhereKueueCan) {
  const json gpu = {{"nvidia.com/gpu", 1}};
  struct Case {
    const char* name;
    json roles;
    Names asked;  // by role
    bool together;
  };
  const std::string rack = "required example.com/rack";
  for (const Case& c :
       {Case{"one of them is a single pod", {role("a", 1), role("b", 3)}, {rack, rack}, true},
        Case{"the other one is", {role("a", 2), role("b", 1)}, {rack, rack}, true},
        Case{"none is", {role("a", 2), role("b", 3)}, {rack, rack}, false},
        Case{"three roles", {role("a", 1), role("b", 1), role("c", 2)}, {rack, rack, rack}, false},
        Case{"one has accelerators", {role("a", 1), role("b", 3, gpu)}, {"", rack}, false}}) {
    SCOPED_TRACE(c.name);
    LevelBench bench;
    bench.add_flavor(kGpu);
    bench.add_queue();
    bench.tell_flavors({"gpu"});
    bench.submit({{"required", "Leaf"}}, {{"roles", c.roles}});
    for (std::size_t i = 0; i < c.asked.size(); ++i) {
      EXPECT_EQ(bench.asked(i), c.asked[i]) << i;
      EXPECT_EQ(bench.request(i).contains("podSetGroupName"), c.together) << i;
    }
  }
}

TEST(KueueLevel, AWaitingWorkloadFollowsItsQueueAndKeepsItsAge) {
  LevelBench bench;
  bench.add_flavor(kGpu);
  bench.add_flavor({"rest", {}});
  bench.add_queue();
  bench.submit({{"required", "Leaf"}});
  const std::string uid = bench.uid();
  EXPECT_EQ(bench.asked(), "") << "Kueue has not said which flavors the queue has";
  bench.tell_flavors({"gpu"});
  EXPECT_EQ(bench.asked(), "required example.com/rack");
  bench.tell_flavors({});
  EXPECT_EQ(bench.asked(), "required example.com/rack") << "Kueue has lost its count for a moment";
  bench.tell_flavors({"gpu", "rest"});
  EXPECT_EQ(bench.asked(), "") << "the flavor without a topology takes no Workload that asks";
  bench.cluster().poke(kube::kResourceFlavors, "", "rest", R"({"spec":{"topologyName":"gpu"}})");
  bench.settle();
  EXPECT_EQ(bench.asked(), "required example.com/rack");
  bench.cluster().erase(kube::kTopologies, "", "gpu");
  bench.settle();
  EXPECT_EQ(bench.asked(), "");
  EXPECT_EQ(bench.uid(), uid);
}

TEST(KueueLevel, APreferenceThatChangesReachesAWaitingWorkload) {
  LevelBench bench;
  bench.add_flavor(kGpu);
  bench.add_queue();
  bench.tell_flavors({"gpu"});
  bench.submit({{"preferred", "Leaf"}});
  const std::string uid = bench.uid();
  bench.patch_job("j", {{"spec", {{"topology", {{"preferred", "Spine"}}}}}});
  bench.settle();
  EXPECT_EQ(bench.asked(), "preferred example.com/block");
  bench.patch_job("j", {{"spec", {{"topology", nullptr}}}});
  bench.settle();
  EXPECT_EQ(bench.asked(), "");
  EXPECT_EQ(bench.uid(), uid);
}

TEST(KueueLevel, QuotaForNodesThatWereChosenWithoutItIsAskedForAgain) {
  struct Case {
    const char* name;
    json topology;
    Names racks;
    bool again;
  };
  for (const Case& c :
       {Case{"a job that waits", {{"required", "Leaf"}}, {"r1", "r2"}, true},
        Case{"a job that runs", {{"required", "Leaf"}}, {"r1", "r1"}, false},
        Case{"a job that only prefers it", {{"preferred", "Leaf"}}, {"r1", "r2"}, false}}) {
    SCOPED_TRACE(c.name);
    LevelBench bench;
    bench.add_flavor(kGpu);
    bench.add_queue();
    bench.submit(c.topology);
    bench.admit({c.racks});
    const std::string uid = bench.uid();
    EXPECT_EQ(bench.phase(), c.again ? "Queued" : "Running") << bench.job("j")["status"].dump(1);
    bench.tell_flavors({"gpu"});
    EXPECT_EQ(bench.uid() != uid, c.again);
    EXPECT_EQ(bench.asked(), c.again ? "required example.com/rack" : "");
    EXPECT_EQ(bench.phase(), c.again ? "Queued" : "Running");
  }
}

TEST(KueueLevel, RolesThatKueuePutApartAreNamed) {
  LevelBench bench;
  bench.add_flavor(kGpu);
  bench.add_queue();
  bench.tell_flavors({"gpu"});
  bench.submit({{"required", "Leaf"}}, {{"roles", {role("a", 2), role("b", 2)}}});
  bench.admit({{"r1", "r1"}, {"r2", "r2"}});
  const json placed = bench.condition("j", "Placed");
  EXPECT_EQ(placed["reason"], "TooLarge");
  EXPECT_TRUE(placed.value("message", "")
                  .contains("the nodes of each role by itself, within one "
                            "example.com/rack"))
      << placed.dump(1);
}

}  // namespace
}  // namespace paceline::apply
