// SPDX-License-Identifier: Apache-2.0
// The result of each check for each device, on machines whose findings name GPUs, NICs, ports,
// network devices and bridges.
#include "agent/checks/device_status.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

class DeviceStatusTest : public testing::Test {
 protected:
  void look_at(const std::string& fixture) {
    const NodeTree tree(fixture);
    const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
    const Hardware hardware = probe_hardware(tree.root(), **library);
    node_ = std::make_unique<Node>(hardware, read_settings(tree.root(), hardware));
    statuses_.clear();
    for (const DeviceStatus& status : device_statuses(*node_, run_checks(*node_)))
      EXPECT_TRUE(statuses_.emplace(key(status), status.value).second)
          << key(status) << " stands there twice";
  }
  static std::string key(const DeviceStatus& status) {
    return status.check + "|" + status.gpu + "|" + status.nic;
  }

  std::optional<int> of(const std::string& check, const std::string& gpu,
                        const std::string& nic) const {
    const auto found = statuses_.find(key({check, gpu, nic}));
    return found == statuses_.end() ? std::nullopt : std::optional(found->second);
  }
  std::size_t series(const std::string& check) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        statuses_, [&](const auto& entry) { return entry.first.starts_with(check + "|"); }));
  }

  std::unique_ptr<Node> node_;
  std::map<std::string, int> statuses_;
};

TEST_F(DeviceStatusTest, EachSubjectCountsForTheDevicesItStandsFor) {
  look_at("dgx-h100-broken");
  EXPECT_EQ(of("nvlink", "GPU2", ""), 2);
  EXPECT_EQ(of("nvlink", "GPU3", ""), 0);
  EXPECT_EQ(of("pcie-link", "", "mlx5_2"), 2);
  EXPECT_EQ(of("pcie-link", "", "mlx5_3"), 0);
  EXPECT_EQ(of("port-state", "", "mlx5_5"), 2) << "a port counts for its NIC";
  EXPECT_EQ(of("pcie-mps", "GPU2", "mlx5_2"), 2) << "a pair is both";
  EXPECT_EQ(of("pcie-mps", "GPU3", "mlx5_3"), 0);
  EXPECT_EQ(of("pcie-relaxed-ordering", "", "mlx5_2"), 1);
  EXPECT_EQ(of("nic-firmware", "", ""), 1) << "the node itself";
  EXPECT_EQ(of("acs", "GPU0", "mlx5_0"), 2) << "a bridge counts for the pair that it is between";
  EXPECT_EQ(series("acs"), 8U);
}

TEST_F(DeviceStatusTest, WhatIsSkippedOrNotKnownHasNoSeries) {
  look_at("dgx-h100-like");
  EXPECT_EQ(series("memlock"), 0U) << "answered in the job's pod";
  EXPECT_EQ(series("gdrcopy"), 0U) << "does not apply";
  EXPECT_EQ(series("port-errors"), 0U) << "one reading says nothing";
  EXPECT_EQ(of("acs", "GPU0", "mlx5_0"), 0);
  // A device with a good and an unknown finding is not good.
  std::vector<Finding> findings{{"bar1", "GPU1", Verdict::kPass, "", ""},
                                {"bar1", "GPU1", Verdict::kUnknown, "", ""},
                                {"bar1", "GPU0", Verdict::kUnknown, "", ""},
                                {"bar1", "GPU0", Verdict::kFail, "", ""}};
  EXPECT_EQ(device_statuses(*node_, findings),
            (std::vector<DeviceStatus>{{"bar1", "GPU0", "", 2}}));
}

TEST_F(DeviceStatusTest, ANetworkDeviceCountsForTheNicItBelongsTo) {
  look_at("two-socket-pcie");
  EXPECT_EQ(of("mtu", "", "mlx5_0"), 0);
  EXPECT_EQ(series("mtu"), 2U);
}

TEST_F(DeviceStatusTest, ManyDevicesAreFoldedAndNoFailureIsLost) {
  look_at("dgx-h100-like");
  Hardware hardware = node_->hardware;
  const Gpu model = hardware.gpu.gpus.front();
  const RdmaDevice nic = hardware.rdma.front();
  hardware.gpu.gpus.clear();
  hardware.rdma.clear();
  for (int i = 0; i < 40; ++i) {
    hardware.gpu.gpus.push_back(model);
    hardware.gpu.gpus.back().index = i;
    hardware.gpu.gpus.back().pci_address = "0000:a0:" + std::to_string(10 + i) + ".0";
    hardware.rdma.push_back(nic);
    hardware.rdma.back().name = "mlx5_" + std::to_string(i);
    hardware.rdma.back().pci_address = "0000:b0:" + std::to_string(10 + i) + ".0";
  }
  const Node many(hardware, Settings{});
  std::vector<Finding> findings;
  for (int gpu = 0; gpu < 40; ++gpu) {
    for (int port = 0; port < 40; ++port) {
      findings.push_back({"dmabuf", "GPU" + std::to_string(gpu) + " mlx5_" + std::to_string(port),
                          gpu == 7 && port == 9 ? Verdict::kFail : Verdict::kPass, "", ""});
    }
  }
  findings.push_back({"bar1", "GPU39", Verdict::kFail, "", ""});
  const auto statuses = device_statuses(many, findings);
  EXPECT_LE(statuses.size(), 1 + kMostGpus + kMostNics + kMostPairs);
  EXPECT_THAT(statuses, testing::Contains(DeviceStatus{"dmabuf", "GPU7", "", 2}));
  EXPECT_THAT(statuses, testing::Contains(DeviceStatus{"dmabuf", "GPU8", "", 0}));
  EXPECT_THAT(statuses, testing::Contains(DeviceStatus{"bar1", "", "", 2}))
      << "beyond the first 32";
}

}  // namespace
}  // namespace paceline::agent
