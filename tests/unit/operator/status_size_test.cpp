// SPDX-License-Identifier: Apache-2.0
// The size of the status of large jobs, and how often it is written.
#include <gtest/gtest.h>

#include <random>

#include "operator/api/placement.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

api::JobStatus large(const std::vector<std::string>& nodes) {
  api::JobStatus status;
  status.phase = "Running";
  status.set_nodes(nodes);
  const int pods = static_cast<int>(nodes.size());
  status.roles = {{"worker", pods, pods, 0, 0, std::vector<int>(nodes.size(), 3)}};
  return status;
}

TEST(StatusSize, TenThousandPodsFit) {
  constexpr std::size_t kLimit = 256UL * 1024;
  std::mt19937 random(1);
  std::vector<std::string> cloud;
  std::vector<std::string> rack;
  for (int i = 0; i < 10000; ++i) {
    cloud.push_back("ip-10-" + std::to_string(i / 250) + "-" + std::to_string(random() % 250) +
                    "-" + std::to_string(i % 250) + ".eu-central-1.compute.internal");
    rack.push_back("gpu-node-" + std::to_string(10000 + i));
  }
  for (const auto& nodes : {cloud, rack}) {
    const api::JobStatus status = large(nodes);
    const json written = api::write_status(status);
    RecordProperty("bytes", static_cast<int>(written.dump().size()));
    EXPECT_LT(written.dump().size(), kLimit);
    EXPECT_EQ(api::read_status({{"status", written}}), status);
  }
}

TEST(StatusSize, OneReplacementCostsALargeJobLittle) {
  std::vector<std::string> nodes;
  for (int i = 0; i < 10000; ++i) nodes.push_back("gpu-node-" + std::to_string(10000 + i));
  api::JobStatus status = large(nodes);
  status.roles[0].incarnations[77] = 4;
  const json written = api::write_status(status);
  EXPECT_LT(written.dump().size(), 256UL * 1024);
  EXPECT_EQ(api::read_status({{"status", written}}), status);
}

TEST(StatusSize, APlacementIsTheSameAfterBothForms) {
  using Nodes = std::vector<api::PlacedNode>;
  EXPECT_EQ(api::placement_text({{"gpu-001.x", 1}, {"gpu-002.x", 8}}), "gpu-00{1,2*8}.x");
  for (const Nodes& nodes :
       {Nodes{{"a", 1}}, Nodes{{"a", 2}, {"aa", 1}}, Nodes{{"aa", 1}, {"a", 3}, {"aa", 1}},
        Nodes{{"n1", 1}, {"m1", 1}}, Nodes{{"x", 1}, {"x-x", 1}, {"x-x-x", 1}}})
    EXPECT_EQ(api::parse_placement_text(api::placement_text(nodes)), nodes)
        << api::placement_text(nodes);
  for (const char* broken : {"", "gpu", "gpu{", "}{", "a{b*c}d", "a{b*}d"})
    EXPECT_TRUE(api::parse_placement_text(broken).empty()) << broken;
}

TEST(StatusSize, CountsAreWrittenAtMostOnceASecond) {
  ControllerBench bench;
  bench.add_node("n0", 64);
  bench.pods_wait = true;
  bench.add_job(
      "j", {{"roles",
             json::array({{{"name", "w"},
                           {"replicas", 60},
                           {"template",
                            {{"spec",
                              {{"containers", json::array({{{"name", "trainer"},
                                                            {"image", "i"},
                                                            {"command", {"train"}}}})}}}}}}})}});
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 60U);
  const std::uint64_t before = bench.writes();
  // one pod every tenth of a second
  for (const json& pod : bench.pods("j")) {
    bench.start(pod["metadata"]["name"]);
    bench.advance(std::chrono::milliseconds(100));
  }
  EXPECT_LE(bench.writes() - before, 10U) << "60 pods become ready in 6 s";
  bench.advance(std::chrono::seconds(1));
  EXPECT_EQ(bench.job("j")["status"]["ready"], "60/60");
  EXPECT_EQ(bench.job("j")["status"]["readyPods"], 60);
  EXPECT_EQ(bench.job("j")["status"]["totalPods"], 60);
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
}

}  // namespace
}  // namespace paceline::apply
