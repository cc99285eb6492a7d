// SPDX-License-Identifier: Apache-2.0
// Counters of ports, network devices and NVLinks: each one of the table is read from a recorded
// machine, changes its own series, and may restart.
#include "common/base/log.hpp"

#include "agent/probe/sysfs/counters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record/record.hpp"
#include "agent/report/metrics.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

class CountersTest : public testing::Test {
 protected:
  /// All series that the agent serves for a machine.
  std::map<std::string, double> series(const NodeTree& tree, const std::string& fixture) {
    const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
    Hardware hardware = probe_hardware(tree.root(), **library);
    if (!hardware.gpu.gpus.empty() && nvlink_errors_)
      hardware.gpu.gpus[0].nvlinks[1].errors = nvlink_errors_;
    metrics_.counted(read_device_counters(tree.root(), hardware), hardware.gpu.gpus);
    const Node node(hardware, read_settings(tree.root(), hardware));
    const auto findings = run_checks(node);
    metrics_.checked(findings, device_statuses(node, findings));
    metrics_.placed(node.fabric);
    std::map<std::string, double> found;
    std::stringstream lines(metrics_.text());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      const std::size_t space = line.rfind(' ');
      EXPECT_TRUE(found.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
          << line << " stands there twice";
    }
    return found;
  }

  std::optional<std::uint64_t> nvlink_errors_;
  Metrics metrics_{"n1", "0.1.0"};
};

const std::string kPortFolder = "sys/class/infiniband/mlx5_0/ports/1/";

TEST_F(CountersTest, ServesPortsNetworkDevicesAndNvLinksInBaseUnits) {
  const NodeTree tree("dgx-h100-like");
  const auto found = series(tree, "dgx-h100-like");
  const std::string port = "{node=\"n1\",nic=\"mlx5_1\",port=\"1\",";
  const double packets =
      found.at("paceline_rdma_port_packets_total" + port + "direction=\"received\"}");
  EXPECT_GT(packets, 0);
  EXPECT_EQ(found.at("paceline_rdma_port_bytes_total" + port + "direction=\"received\"}"),
            packets * 4096)
      << "the kernel counts words of four bytes";
  EXPECT_EQ(found.at("paceline_rdma_port_errors_total" + port + "kind=\"link_downed\"}"), 0);
  EXPECT_EQ(found.at("paceline_nic_bytes_total{node=\"n1\",nic=\"eth0\",direction=\"sent\"}"),
            750'000);
  EXPECT_EQ(found.at("paceline_nic_drops_total{node=\"n1\",nic=\"eth0\",direction=\"received\"}"),
            7);
  EXPECT_EQ(found.at("paceline_nic_link_changes_total{node=\"n1\",nic=\"eth0\"}"), 2);
  EXPECT_EQ(found.at("paceline_nvlink_errors_total{node=\"n1\",gpu=\"GPU0\",link=\"17\"}"), 0);
}

TEST_F(CountersTest, EveryKindOfTheTableMovesItsOwnSeries) {
  const NodeTree tree("two-socket-pcie");
  const auto before = series(tree, "two-socket-pcie");
  std::uint64_t next = 1'000'000;
  for (const CounterKind& kind : counter_kinds()) {
    const std::string folder =
        kind.of == CounterKind::Of::kRdmaPort ? kPortFolder : "sys/class/net/ens0/";
    tree.write(folder + kind.file, std::to_string(++next) + "\n");
  }
  std::map<double, std::string> moved;
  std::size_t changed = 0;
  for (const auto& [name, value] : series(tree, "two-socket-pcie")) {
    if (name.starts_with("process_") || !before.contains(name) || before.at(name) == value)
      continue;
    EXPECT_TRUE(name.contains("mlx5_0") || name.contains("ens0")) << name;
    moved[value] = name;
    ++changed;
  }
  EXPECT_EQ(changed, counter_kinds().size());
  next = 1'000'000;
  for (const CounterKind& kind : counter_kinds()) {
    const auto series = moved.find(static_cast<double>(++next) * kind.unit);
    ASSERT_NE(series, moved.end()) << kind.file;
    EXPECT_TRUE(series->second.starts_with(kind.metric)) << series->second;
    if (kind.label.empty()) continue;
    EXPECT_TRUE(
        series->second.contains(std::string(kind.label) + "=\"" + std::string(kind.value) + "\""));
  }
}

TEST_F(CountersTest, ACounterOfADeviceThatStartsOverRestartsAtZero) {
  const NodeTree tree("dgx-h100-like");
  const std::string bytes =
      "paceline_rdma_port_bytes_total{node=\"n1\",nic=\"mlx5_0\",port=\"1\",direction=\"sent\"}";
  const std::string link = "paceline_nvlink_errors_total{node=\"n1\",gpu=\"GPU0\",link=\"1\"}";
  tree.write(kPortFolder + "counters/port_xmit_data", "18446744073709551615\n");
  nvlink_errors_ = 9;
  EXPECT_EQ(series(tree, "dgx-h100-like").at(bytes), 18446744073709551615.0 * 4);
  EXPECT_EQ(series(tree, "dgx-h100-like").at(link), 9);
  tree.write(kPortFolder + "counters/port_xmit_data", "3\n");
  nvlink_errors_ = 0;
  EXPECT_EQ(series(tree, "dgx-h100-like").at(bytes), 12);
  EXPECT_EQ(series(tree, "dgx-h100-like").at(link), 0);
}

TEST_F(CountersTest, WhatADeviceDoesNotCountHasNoSeries) {
  const NodeTree tree("dgx-h100-like");
  for (const char* nonsense : {"N/A (no PMA)\n", "-1\n", "18446744073709551616\n", "", "1 2\n"}) {
    tree.write(kPortFolder + "counters/port_xmit_data", nonsense);
    EXPECT_FALSE(series(tree, "dgx-h100-like")
                     .contains("paceline_rdma_port_bytes_total{node=\"n1\",nic=\"mlx5_0\",port="
                               "\"1\",direction=\"sent\"}"));
  }
  const auto nothing = series(NodeTree("nothing"), "nothing");
  for (const auto& entry : nothing) {
    EXPECT_FALSE(entry.first.starts_with("paceline_rdma_") ||
                 entry.first.starts_with("paceline_nic_bytes"))
        << "absent is not zero: " << entry.first;
  }
}

TEST_F(CountersTest, ARecordingHoldsThemAll) {
  const NodeTree tree("two-socket-pcie");
  const auto library = read_nvml_json(NodeTree::nvml_json("two-socket-pcie"), "nvml");
  const auto before = read_device_counters(tree.root(), probe_hardware(tree.root(), **library));
  const auto folder = tree.folder() / "recorded";
  ASSERT_TRUE(write_recording(record_machine(tree.root(), **library), folder));
  const Root recorded = Root::at(folder);
  const auto after = read_device_counters(recorded, probe_hardware(recorded, **library));
  ASSERT_FALSE(before.empty());
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(after[i].value, before[i].value) << before[i].kind->file;
}

TEST_F(CountersTest, PromtoolAcceptsWhatTheAgentServes) {
  const NodeTree tree("dgx-h100-broken");
  series(tree, "dgx-h100-broken");
  const auto file = std::filesystem::temp_directory_path() /
                    ("paceline-node-metrics-" + std::to_string(::getpid()));
  std::ofstream(file) << metrics_.text();
  EXPECT_EQ(std::system(("promtool check metrics < " + file.string()).c_str()), 0)
      << metrics_.text();
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace paceline::agent
