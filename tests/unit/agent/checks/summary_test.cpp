// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/checks/summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "agent/checks/counter_window.hpp"
#include "agent/report/node_fabric.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/report/report_fixture.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Fabric, TellsTheFirstCheckThatFailsAndItsRemedy) {
  const Hardware broken = recorded_machine("dgx-h100-broken");
  const json ready =
      condition(fabric_status(broken, "0", checked("dgx-h100-broken")), "GpuDirectReady");
  EXPECT_EQ(ready["status"], "False");
  EXPECT_EQ(ready["reason"], "dmabuf");
  EXPECT_THAT(ready["message"].get<std::string>(),
              HasSubstr("dmabuf fails; install the driver with its open kernel modules"));
  EXPECT_THAT(ready["message"].get<std::string>(),
              HasSubstr("also failing: peermem-loaded, acs, iommu"));
  // What only a registration can prove stays unknown, even if all else is good.
  const json open =
      condition(fabric_status(recorded_machine("dgx-a100-like"), "0", checked("dgx-a100-like")),
                "GpuDirectReady");
  EXPECT_EQ(open["status"], "Unknown");
  EXPECT_EQ(open["reason"], "NotProved");
  EXPECT_THAT(open["message"].get<std::string>(), HasSubstr("peermem-effective"));
  const json none =
      condition(fabric_status(recorded_machine("cloud-vm-gpu"), "0", checked("cloud-vm-gpu")),
                "GpuDirectReady");
  EXPECT_EQ(none["status"], "False");
  EXPECT_EQ(none["reason"], "NoRdmaDevice");
  EXPECT_TRUE(condition(fabric_status(recorded_machine("nothing"), "0", checked("nothing")),
                        "GpuDirectReady")
                  .empty());
}

TEST(Fabric, IsNotHealthyBeforeItsGpusAreRegistered) {
  const Hardware hardware = recorded_machine("dgx-a100-like");
  auto findings = checked("dgx-a100-like");
  EXPECT_EQ(condition(fabric_status(hardware, "0", findings), "FabricHealthy")["status"], "True");
  for (auto& finding : findings) {
    if (finding.id == "fabric") finding.verdict = Verdict::kFail;
  }
  const json ill = condition(fabric_status(hardware, "0", findings), "FabricHealthy");
  EXPECT_EQ(ill["status"], "False");
  EXPECT_EQ(ill["reason"], "fabric");
}

TEST(GpuDirect, IsReadyOnceARegistrationIsProved) {
  auto findings = checked("dgx-a100-like");
  for (auto& finding : findings) {
    if (finding.id == "peermem-effective") finding.verdict = Verdict::kPass;
  }
  EXPECT_EQ(gpu_direct_ready(findings).good, true);
  for (auto& finding : findings) {
    if (finding.id == "acs") finding.verdict = Verdict::kUnknown;
  }
  EXPECT_EQ(gpu_direct_ready(findings).good, std::nullopt);
  EXPECT_EQ(gpu_direct_ready(findings).message, "nothing fails, but these checks are unknown: acs");
}

std::vector<Finding> live(const char* fixture, const std::function<void(Attempt&)>& change) {
  const NodeTree tree(fixture);
  Hardware hardware = recorded_machine(fixture);
  Settings settings = read_settings(tree.root(), hardware);
  Registrations tried;
  for (const auto& gpu : hardware.gpu.gpus) {
    for (const auto& nic : hardware.rdma) {
      for (const Step way : {Step::kDmaBuf, Step::kPeerMemory}) {
        Attempt attempt{way, nic.name, gpu.pci_address, Outcome::kDone, 0, ""};
        change(attempt);
        tried.attempts.push_back(std::move(attempt));
      }
    }
  }
  return run_checks(Node(std::move(hardware), std::move(settings), {}, std::move(tried)));
}

TEST(GpuDirect, IsReadyInAVirtualMachineThatShowsNoTree) {
  EXPECT_EQ(gpu_direct_ready(live("cloud-vm-rdma", [](Attempt&) {})).good, true);
  EXPECT_EQ(gpu_direct_ready(checked("cloud-vm-rdma")).good, std::nullopt);
  const auto refused =
      live("cloud-vm-rdma", [](Attempt& attempt) { attempt.outcome = Outcome::kRefused; });
  EXPECT_EQ(gpu_direct_ready(refused).reason, "dmabuf");
}

TEST(GpuDirect, IsReadyWhereSomePairsAreRegisteredInOneWayAndSomeInTheOther) {
  const auto mixed = [](Attempt& attempt) {
    if ((attempt.step == Step::kDmaBuf) != (attempt.nic == "mlx5_2")) return;
    attempt.outcome = Outcome::kRefused;
    attempt.why = "no";
  };
  EXPECT_EQ(gpu_direct_ready(live("cloud-vm-rdma", mixed)).good, true);
  // A pair that was not tried is not proved by the others.
  const auto left_out = [](Attempt& attempt) {
    if (attempt.gpu == "0000:00:06.0") attempt.gpu = "0000:00:99.0";
  };
  EXPECT_EQ(gpu_direct_ready(live("cloud-vm-rdma", left_out)).good, std::nullopt);
}

TEST(CounterWindow, ComparesWithTheOldestReadingOfAnHour) {
  using std::chrono::minutes;
  CounterWindow window;
  SteadyTime now{};
  EXPECT_FALSE(window.compare({{"x", 0}}, now));
  for (std::uint64_t minute = 1; minute <= 180; ++minute) {
    now += minutes(1);
    const auto earlier = window.compare({{"x", minute}}, now);
    ASSERT_TRUE(earlier);
    EXPECT_EQ(earlier->counters.at("x"),
              minute - static_cast<std::uint64_t>(earlier->age / minutes(1)));
    EXPECT_LE(earlier->age, CounterWindow::kLength);
    EXPECT_GE(earlier->age, std::min<std::chrono::seconds>(minutes(minute), minutes(55)));
  }
  now += minutes(500);  // the loop was stuck: what is older than the window says nothing about now
  EXPECT_FALSE(window.compare({{"x", 1}}, now));
}

}  // namespace
}  // namespace paceline::agent
