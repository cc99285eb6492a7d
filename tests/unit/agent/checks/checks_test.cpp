// SPDX-License-Identifier: Apache-2.0
// Every check on machines where it passes, where it finds its fault, and where it cannot decide:
// one row for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/checks/check.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

using testing::HasSubstr;

std::vector<CheckCase> all_cases() {
  std::vector<CheckCase> all;
  for (const auto& some : {gpu_cases(), registration_cases(), live_cases(), bus_cases(),
                           placement_cases(), port_cases()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

class CheckCases : public testing::TestWithParam<CheckCase> {};

TEST_P(CheckCases, SaysWhatItFound) {
  const CheckCase& row = GetParam();
  const NodeTree tree(row.fixture);
  row.change(tree);
  std::string said;
  for (const auto& finding :
       findings_of(tree, row.fixture, row.alter, row.earlier, row.registrations)) {
    if (finding.id != row.id) continue;
    if (finding.verdict == row.verdict &&
        finding.evidence.find(row.evidence) != std::string::npos) {
      const bool mend = row.verdict == Verdict::kFail || row.verdict == Verdict::kWarn;
      EXPECT_EQ(finding.remedy.empty(), !mend);
      return;
    }
    said += std::string(to_string(finding.verdict)) + " " + finding.subject + ": " +
            finding.evidence + "\n";
  }
  ADD_FAILURE() << "instead:\n" << said;
}

INSTANTIATE_TEST_SUITE_P(Table, CheckCases, testing::ValuesIn(all_cases()));

TEST(CheckTable, EveryCheckIsSeenPassingFailingAndNotKnowing) {
  std::map<std::string, std::set<Verdict>> seen;
  for (const auto& row : all_cases()) seen[row.id].insert(row.verdict);
  for (const auto& check : checks()) {
    const std::string id(check.id);
    // The environment of a pod is not checked here.
    if (id != "nccl-env") {
      EXPECT_TRUE(seen[id].contains(check.severity)) << id;
      EXPECT_TRUE(seen[id].contains(Verdict::kPass)) << id;
    }
    EXPECT_TRUE(seen[id].contains(Verdict::kUnknown)) << id;
  }
}

TEST(CheckTable, NamesEachCheckOnceWithARemedy) {
  std::set<std::string_view> ids;
  for (const auto& check : checks()) {
    EXPECT_TRUE(ids.insert(check.id).second) << check.id;
    EXPECT_EQ(find_check(check.id), &check);
    EXPECT_FALSE(check.title.empty() || check.reads.empty()) << check.id;
    EXPECT_EQ(check.remedy.empty(), check.severity == Verdict::kPass) << check.id;
  }
  EXPECT_EQ(find_check("nonsense"), nullptr);
}

/// The expected rows of the table in docs/operate/checks.md.
std::string documented_table() {
  constexpr const char* kConcerns[] = {"", "GpuDirectReady", "FabricHealthy", "GpuHealthy"};
  std::string text;
  for (const auto& check : checks()) {
    const std::string id = "`" + std::string(check.id) + "`";
    text += "| " + (check.link.empty() ? id : "[" + id + "](" + std::string(check.link) + ")") +
            " | " + std::string(to_string(check.place)) + " | " +
            std::string(to_string(check.severity)) + " | " +
            kConcerns[static_cast<std::size_t>(check.concern)] + " | " + std::string(check.reads) +
            " | " + std::string(check.remedy) + " |\n";
  }
  for (auto at = text.find('*'); at != std::string::npos; at = text.find('*', at + 2))
    text.insert(at, 1, '\\');
  return text;
}

TEST(CheckTable, IsTheOneInItsDesign) {
  std::ifstream file(std::string(PACELINE_SOURCE_DIR) + "/docs/operate/checks.md");
  const std::string design{std::istreambuf_iterator<char>(file), {}};
  const std::string table = documented_table();
  const auto first = design.find("| [`" + std::string(checks().front().id) + "`]");
  ASSERT_NE(first, std::string::npos) << "docs/operate/checks.md wants these rows:\n" << table;
  EXPECT_EQ(design.substr(first, design.find("\n\n", first) + 1 - first), table)
      << "docs/operate/checks.md has other rows than agent/checks/table.cpp";
}

TEST(CheckTable, EveryMachineGetsAnAnswerToEveryCheck) {
  for (const char* fixture : {kH100, kBroken, kA100, kTray, kSockets, kVirtual, kVirtualRdma,
                              kXe9680, kEfa, "cloud-vm", "nothing"}) {
    const NodeTree tree(fixture);
    std::set<std::string> answered;
    for (const auto& finding : findings_of(tree, fixture)) {
      answered.insert(finding.id);
      EXPECT_FALSE(finding.evidence.empty()) << fixture << " " << finding.id;
      EXPECT_THAT(finding.evidence, testing::Not(HasSubstr("nothing to look at")))
          << fixture << " " << finding.id;
    }
    EXPECT_EQ(answered.size(), checks().size()) << fixture;
  }
}

TEST(CheckTable, ShowsNothingThatATerminalObeys) {
  const NodeTree tree(kH100);
  tree.write("sys/class/infiniband/mlx5_3/fw_ver", "28\x1b[2J\x07.39");
  tree.write(kPort3 + "link_layer", std::string(60, '\x1b'));
  for (const auto& finding : findings_of(tree, kH100)) {
    for (const char c : finding.evidence + finding.subject)
      EXPECT_TRUE(c >= 0x20 && c <= 0x7e) << finding.id;
    EXPECT_LE(finding.evidence.size(), 240U);
  }
}

TEST(CheckTable, AHostileMachineIsOnlyNotKnown) {
  const NodeTree tree(kA100);
  namespace fs = std::filesystem;
  for (const auto& entry : fs::recursive_directory_iterator(tree.folder() / "sys/devices")) {
    if (entry.is_regular_file() && entry.path().filename() == "config")
      std::ofstream(entry.path(), std::ios::binary) << std::string(4096, '\xff');
  }
  tree.write("proc/modules", std::string(1U << 20U, 'm'));
  tree.write("proc/devices", std::string(1U << 20U, '\n'));
  tree.write("sys/module/nvidia_peermem/parameters/peerdirect_support", "999999999999999999999");
  const auto findings = findings_of(tree, kA100);
  EXPECT_EQ(worst(findings, "acs"), Verdict::kUnknown);
  EXPECT_EQ(worst(findings, "pcie-mrrs"), Verdict::kUnknown);
  EXPECT_EQ(worst(findings, "peermem-params"), Verdict::kUnknown);
}

}  // namespace
}  // namespace paceline::agent