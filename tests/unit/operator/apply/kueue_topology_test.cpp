// SPDX-License-Identifier: Apache-2.0
// The levels of the network that Topologies of Kueue name.
#include <gtest/gtest.h>

#include "common/kube/api/kueue.hpp"
#include "operator/apply/kueue/topologies.hpp"
#include "operator/observe/topology_labels.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

json topology(const std::string& name, const Names& labels) {
  json levels = json::array();
  for (const std::string& label : labels) levels.push_back({{"nodeLabel", label}});
  return {{"metadata", {{"name", name}}}, {"spec", {{"levels", levels}}}};
}

json flavor(const std::string& name, const std::string& pool, const std::string& topology) {
  return {{"metadata", {{"name", name}}},
          {"spec", {{"nodeLabels", {{"pool", pool}}}, {"topologyName", topology}}}};
}

TEST(KueueTopology, LabelsThatNoClusterSharesNameTheClosestLevelsLeft) {
  struct Case {
    const char* name;
    Names labels;  // from the widest
    observe::LevelLabels levels;
  };
  for (const Case& c :
       {Case{"none", {}, {}}, Case{"only the nodes", {"kubernetes.io/hostname"}, {}},
        Case{"racks", {"rack"}, {"", "rack", "", ""}},
        Case{"blocks and racks",
             {"block", "rack", "kubernetes.io/hostname"},
             {"", "rack", "block", ""}},
        Case{"more than there are levels",
             {"region", "site", "row", "rack", "kubernetes.io/hostname"},
             {"", "rack", "row", "site"}},
        Case{"under a zone", {"topology.kubernetes.io/zone", "rack"}, {"", "rack", "", ""}},
        Case{"above a known leaf",
             {"hall", "cloud.google.com/gce-topology-subblock"},
             {"", "", "hall", ""}},
        Case{"between a known spine and the nodes",
             {"cloud.google.com/gce-topology-block", "rack"},
             {"", "rack", "", ""}},
        Case{"no level is left below a known leaf",
             {"cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
              "cloud.google.com/gce-topology-host", "kubernetes.io/hostname"},
             {}},
        Case{"above an NVLink domain", {"rack", "nvidia.com/gpu.clique"}, {"", "rack", "", ""}}}) {
    EXPECT_EQ(observe::levels_of(c.labels), c.levels) << c.name;
  }
}

class ClusterOfStores {
 public:
  void add_node(const json& labels) {
    const std::string name = "n" + std::to_string(nodes_++);
    put(stores_.nodes, {{"metadata", {{"name", name}, {"labels", labels}}}});
  }
  void add_topology(const json& object) { put(stores_.topologies, object); }
  void add_flavor(const json& object) { put(stores_.flavors, object); }

  /// The leaf of each node; empty: the nodes' own domains count.
  Names leaves() const {
    std::vector<std::shared_ptr<const observe::NodeView>> nodes;
    for (int i = 0; i < nodes_; ++i) nodes.push_back(stores_.nodes.get("n" + std::to_string(i)));
    Names leaves;
    for (const plan::Domains& domains : domains_by_topologies(stores_, nodes))
      leaves.emplace_back(domains[static_cast<std::size_t>(api::TopologyLevel::kLeaf)]);
    return leaves;
  }

 private:
  static void put(kube::ObjectSink& store, const json& object) {
    ASSERT_TRUE(store.apply({kube::WatchEventType::kAdded, object.dump()}));
  }
  Stores stores_;
  int nodes_ = 0;
};

TEST(KueueTopology, ATopologyCountsForTheNodesOfItsFlavors) {
  ClusterOfStores cluster;
  cluster.add_node({{"pool", "a"}, {"rack", "r1"}, {"shelf", "s1"}});
  cluster.add_node({{"pool", "a"}, {"rack", "r1"}, {"paceline.dev/leaf", "mine"}});
  cluster.add_node({{"pool", "a"}});
  cluster.add_node({{"pool", "b"}, {"rack", "r1"}, {"shelf", "s2"}});
  cluster.add_node({{"rack", "r1"}});
  cluster.add_topology(topology("racks", {"rack", "kubernetes.io/hostname"}));
  cluster.add_topology(topology("shelves", {"shelf"}));
  cluster.add_topology(topology("zones", {"topology.kubernetes.io/zone"}));
  EXPECT_EQ(cluster.leaves(), Names{}) << "no flavor names a Topology";
  cluster.add_flavor(flavor("zoned", "a", "zones"));
  cluster.add_flavor(flavor("lost", "a", "deleted"));
  EXPECT_EQ(cluster.leaves(), Names{}) << "its labels are read anyway";
  cluster.add_flavor(flavor("z-shelved", "a", "shelves"));
  cluster.add_flavor(flavor("racked", "a", "racks"));
  cluster.add_flavor(flavor("shelved", "b", "shelves"));
  EXPECT_EQ(cluster.leaves(), (Names{"r1", "mine", "", "s2", ""}));
}

class TopologyBench : public ControllerBench {
 public:
  TopologyBench() {
    // The first nodes by name are no part of the flavor.
    add_node("a0", 1, {{"example.com/rack", "a"}});
    add_node("a1", 1, {{"example.com/rack", "a"}});
    add_node("b0", 1, in("b"));
    add_node("c0", 1, in("c"));
    add_node("c1", 1, in("c"));
  }
  void describe_racks() {
    create(kube::kTopologies, "",
           topology("racks", {"example.com/row", "example.com/rack", "kubernetes.io/hostname"}));
    create(kube::kResourceFlavors, "", flavor("gpu", "gpu", "racks"));
    settle();
  }
  void add_close(const std::string& name) {
    add_job(name, {{"topology", {{"required", "Leaf"}}}});
    settle();
  }
  std::string waits(const std::string& name) {
    return condition(name, "Placed").value("message", "");
  }

 private:
  static json in(const std::string& rack) {
    return {{"pool", "gpu"}, {"example.com/rack", rack}, {"example.com/row", "row-1"}};
  }
};

constexpr const char* kNoLeaves = "no node has a label that names its leaf";

TEST(KueueTopology, AWaitingJobIsPlacedByTheLevelsWhenTheyAreDescribed) {
  TopologyBench bench;
  bench.add_close("j");
  EXPECT_TRUE(bench.pods("j").empty());
  EXPECT_NE(bench.waits("j").find(kNoLeaves), std::string::npos) << bench.waits("j");
  bench.describe_racks();
  const json placement = bench.job("j")["status"]["placement"];
  EXPECT_EQ(placement["nodes"],
            json::parse(R"([{"name": "c0", "pods": 1}, {"name": "c1", "pods": 1}])"))
      << bench.job("j")["status"].dump(1);
  EXPECT_EQ(placement["where"], "2 nodes in leaf c, spine row-1");
}

TEST(KueueTopology, AfterItsEndRunningJobsStayAndWaitingOnesKnowNoLevels) {
  TopologyBench bench;
  bench.describe_racks();
  bench.add_close("j");
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  const json before = bench.job("j")["status"]["placement"];
  bench.cluster().erase(kube::kTopologies, "", "racks");
  bench.add_close("k");
  EXPECT_TRUE(bench.pods("k").empty());
  EXPECT_NE(bench.waits("k").find(kNoLeaves), std::string::npos) << bench.waits("k");
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_EQ(bench.job("j")["status"]["placement"], before);
}

}  // namespace
}  // namespace paceline::apply
