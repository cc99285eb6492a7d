// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using observe::Verdict;

json node_with(json labels, json taints) {
  return {{"metadata", {{"name", "n0"}, {"resourceVersion", "7"}, {"labels", std::move(labels)}}},
          {"spec", {{"taints", std::move(taints)}}}};
}

observe::FabricView fabric_with(Verdict gpus, Verdict links, Verdict gpu_direct) {
  observe::FabricView fabric;
  fabric.meta.name = "n0";
  fabric.gpu_healthy = gpus;
  fabric.fabric_healthy = links;
  fabric.gpu_direct = gpu_direct;
  return fabric;
}

const json kForeign = {{"key", "maintenance"},
                       {"effect", "NoExecute"},
                       {"value", "now"},
                       {"timeAdded", "2026-01-01T00:00:00Z"}};
const json kOurs = {{"key", "paceline.dev/unhealthy"}, {"effect", "NoSchedule"}};

TEST(NodeMarks, LabelsSayWhatIsKnownAndNothingElse) {
  const auto fabric = fabric_with(Verdict::kTrue, Verdict::kFalse, Verdict::kUnknown);
  const MarkSettings labels{.labels = true};
  const json stale =
      node_with({{"paceline.dev/gpu-direct-ready", "true"}, {"zone", "a"}}, json::array());
  const json changes = {{"paceline.dev/gpu-healthy", "true"},
                        {"paceline.dev/fabric-healthy", "false"},
                        {"paceline.dev/gpu-direct-ready", nullptr}};
  EXPECT_EQ(marked(stale, fabric, labels),
            (json{{"metadata", {{"labels", changes}, {"resourceVersion", "7"}}}}));
  const json right = node_with(
      {{"paceline.dev/gpu-healthy", "true"}, {"paceline.dev/fabric-healthy", "false"}}, {});
  EXPECT_TRUE(marked(right, fabric, labels).is_null()) << "nothing to write";
  EXPECT_TRUE(marked(stale, fabric, MarkSettings{}).is_null()) << "off unless asked for";
}

TEST(NodeMarks, ATaintComesWithAFaultAndGoesWithIt) {
  const MarkSettings taint{.taint = true};
  const auto faulty = fabric_with(Verdict::kFalse, Verdict::kTrue, Verdict::kFalse);
  const auto sound = fabric_with(Verdict::kTrue, Verdict::kTrue, Verdict::kFalse);
  const json free = node_with({}, json::array({kForeign}));
  const json held = node_with({}, json::array({kForeign, kOurs}));
  EXPECT_EQ(marked(free, faulty, taint)["spec"]["taints"], json::array({kForeign, kOurs}))
      << "others' taints stay";
  EXPECT_EQ(marked(held, sound, taint)["spec"]["taints"], json::array({kForeign}));
  EXPECT_TRUE(marked(held, faulty, taint).is_null());
  EXPECT_TRUE(marked(free, sound, taint).is_null());
  EXPECT_TRUE(
      marked(free, fabric_with(Verdict::kUnknown, Verdict::kUnknown, Verdict::kUnknown), taint)
          .is_null())
      << "what is not known is no fault";
}

TEST(NodeMarks, TheControllerFollowsTheFabric) {
  ControllerBench bench({.labels = true, .taint = true});
  bench.add_node("n0", 4);
  const auto says = [](const char* status) {
    const json condition = {{"type", "GpuHealthy"}, {"status", status}, {"reason", "Lost"}};
    return json{{"status", {{"conditions", json::array({condition})}}}};
  };
  json fabric = says("False");
  fabric["metadata"] = {{"name", "n0"}};
  bench.create(kube::kNodeFabrics, "", fabric);
  bench.settle();
  const auto node = [&] { return bench.node("n0"); };
  EXPECT_EQ(node()["metadata"]["labels"]["paceline.dev/gpu-healthy"], "false");
  EXPECT_EQ(node()["spec"]["taints"], json::array({kOurs}));

  bench.cluster().poke(kube::kNodeFabrics, "", "n0", says("True").dump());
  bench.settle();
  EXPECT_EQ(node()["metadata"]["labels"]["paceline.dev/gpu-healthy"], "true");
  EXPECT_EQ(node()["spec"]["taints"], json::array());
  const std::uint64_t writes = bench.writes();
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.writes(), writes) << "another operator finds it as it should be";

  // A Node that is created again under its name has lost its marks.
  bench.cluster().erase(kube::kNodes, "", "n0");
  bench.settle();
  bench.add_node("n0", 4);
  bench.settle();
  EXPECT_EQ(node()["metadata"]["labels"]["paceline.dev/gpu-healthy"], "true");
}

}  // namespace
}  // namespace paceline::apply
