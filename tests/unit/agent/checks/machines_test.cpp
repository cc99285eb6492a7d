// SPDX-License-Identifier: Apache-2.0
// Verdicts on descriptions of real machines, where a false FAIL was or would be easy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/checks/summary.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "agent/report/node_fabric.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Hardware machine_of(const NodeTree& tree, std::string_view fixture) {
  const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
  return library ? probe_hardware(tree.root(), **library) : Hardware{};
}

std::vector<std::string> rail_nics(const Hardware& machine) {
  std::vector<std::string> nics;
  for (const auto& rail : relate(machine).rails) nics.push_back(rail.nic);
  return nics;
}

/// "check subject" of each finding with this verdict.
std::vector<std::string> with(Verdict verdict, const std::vector<Finding>& findings) {
  std::vector<std::string> found;
  for (const auto& finding : findings) {
    if (finding.verdict == verdict && !finding.subject.empty())
      found.push_back(finding.id + " " + finding.subject);
  }
  return found;
}

void put_down(const NodeTree& tree, const std::string& name) {
  const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
  tree.write(port + "state", "1: DOWN\n");
  tree.write(port + "phys_state", "3: Disabled\n");
  tree.write(port + "rate", "10 Gb/sec (4X SDR)\n");
}

const std::vector<std::string> kRails{"mlx5_0", "mlx5_3", "mlx5_4",  "mlx5_5",
                                      "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"};

TEST(Xe9680, SparePortsAreToldAndFailNothing) {
  const NodeTree tree(kXe9680);
  const auto findings = findings_of(tree, kXe9680);
  EXPECT_THAT(with(Verdict::kFail, findings), IsEmpty());
  EXPECT_THAT(with(Verdict::kSkip, findings),
              testing::IsSupersetOf({"port-state mlx5_2/1", "port-state mlx5_8/1"}));
  EXPECT_NE(gpu_direct_ready(findings).good, false);
  EXPECT_EQ(rail_nics(machine_of(tree, kXe9680)), kRails);
}

TEST(Xe9680, RailsKeepTheirNumbersWhicheverPortIsDown) {
  for (const auto& down : {std::vector<std::string>{"mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"},
                           {"mlx5_0"},
                           {"mlx5_4", "mlx5_11"}}) {
    const NodeTree tree(kXe9680);
    for (const auto& name : down) put_down(tree, name);
    EXPECT_EQ(rail_nics(machine_of(tree, kXe9680)), kRails) << down.front();
  }
  const NodeTree tree(kXe9680);
  put_down(tree, "mlx5_4");
  EXPECT_THAT(with(Verdict::kFail, findings_of(tree, kXe9680)), ElementsAre("port-state mlx5_4/1"));
}

TEST(Xe9680, ASpareCardOfTheSameBoardIsNoRail) {
  const NodeTree tree(kXe9680);
  for (const char* name : {"mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"}) {
    put_down(tree, name);
    tree.write("sys/class/infiniband/" + std::string(name) + "/board_id", "DEL0000000040\n");
    tree.write("sys/class/infiniband/" + std::string(name) + "/ports/1/link_layer", "InfiniBand\n");
  }
  EXPECT_EQ(rail_nics(machine_of(tree, kXe9680)), kRails);
  EXPECT_THAT(with(Verdict::kFail, findings_of(tree, kXe9680)), IsEmpty());
}

TEST(Xe9680, TheNodeFabricMissesNoLinkThatNothingUses) {
  const NodeTree tree(kXe9680);
  const nlohmann::json status = fabric_status(machine_of(tree, kXe9680), "0.1.0");
  for (const auto& condition : status["conditions"]) {
    if (condition["type"] == "FabricHealthy") {
      EXPECT_EQ(condition["status"], "True") << condition;
    }
  }
}

TEST(Xe9680, GpusAreInTheOrderOfTheBus) {
  NodeTree tree(kXe9680);
  std::vector<std::string> order;
  for (const auto& function : machine_of(tree, kXe9680).pci) {
    if (function.vendor == 0x10de) order.push_back(function.address.substr(5, 2));
  }
  EXPECT_THAT(order, ElementsAre("19", "3b", "4c", "5d", "9b", "bb", "cb", "db"));
}

TEST(Xe9680, InfinibandBesideAnEthernetBondIsOneLinkLayer) {
  const NodeTree tree(kXe9680);
  for (const char* name : {"mlx5_1", "mlx5_7"})
    tree.write("sys/class/infiniband/" + std::string(name) + "/ports/1/rate",
               "400 Gb/sec (4X NDR)\n");
  const auto findings = findings_of(tree, kXe9680);
  EXPECT_EQ(worst(findings, "link-layer"), Verdict::kPass);
  EXPECT_EQ(worst(findings, "nic-firmware"), Verdict::kPass);
  EXPECT_EQ(rail_nics(machine_of(tree, kXe9680)), kRails);
}

TEST(Xe9680, FirmwareIsComparedWithinABoardOnly) {
  const NodeTree tree(kXe9680);
  const std::string card = "sys/class/infiniband/mlx5_3/";
  tree.write(card + "board_id", "MT_0000000838\n");
  tree.write(card + "fw_ver", "28.42.1000\n");
  EXPECT_EQ(worst(findings_of(tree, kXe9680), "nic-firmware"), Verdict::kPass);
}

TEST(B200, FunctionsThatManageSwitchesAreNotForTraining) {
  const NodeTree tree(kXe9680);
  tree.write(pci_file("0000:1a:00.0", "vpd"), std::string("\x82\x04\0SMDL=SW_MNG", 14));
  const Hardware machine = machine_of(tree, kXe9680);
  const auto nics = rail_nics(machine);
  EXPECT_EQ(std::count(nics.begin(), nics.end(), "mlx5_0"), 0);
  EXPECT_THAT(matrix_text(relate(machine)), testing::HasSubstr("manages NVSwitches"));
}

TEST(P5en, EfaFailsNothing) {
  const NodeTree tree(kEfa);
  const auto findings = findings_of(tree, kEfa);
  for (const auto& finding : findings)
    EXPECT_NE(finding.verdict, Verdict::kFail) << finding.id << " " << finding.evidence;
  EXPECT_THAT(rail_nics(machine_of(tree, kEfa)),
              ElementsAre("rdmap110s0", "rdmap111s0", "rdmap112s0", "rdmap113s0"));
  EXPECT_THAT(matrix_text(relate(machine_of(tree, kEfa))),
              testing::HasSubstr("EFA 200 Gb/s ACTIVE"));
}

}  // namespace
}  // namespace paceline::agent
