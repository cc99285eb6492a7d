// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/agent.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/report/report_fixture.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using namespace std::chrono_literals;

class NoGpus final : public GpuLibrary {
 public:
  Result<std::vector<Gpu>> devices() override {
    return fail(Code::kNotFound, Origin::kCuda, "none here");
  }
};

TEST_F(PublisherTest, TheLoopProbesRenewsAndLivesWithoutAnApiServer) {
  const NodeTree tree("cloud-vm");
  NoGpus library;
  Metrics metrics("n1", "0.1.0");
  Agent agent(tree.root(), library, *publisher_, metrics, clock_, {});

  bool down = true;
  cluster_.set_faults([&](const http::Request&) -> std::optional<kube::Fault> {
    if (!down) return std::nullopt;
    kube::Fault fault;
    fault.status = 500;
    return fault;
  });
  auto next = agent.tick();
  EXPECT_FALSE(agent.ready());
  EXPECT_TRUE(agent.healthy());
  EXPECT_EQ(next, clock_.steady() + 1s);  // the first pause after a failure
  EXPECT_THAT(metrics.text(), HasSubstr("paceline_agent_fabric_failures_total{node=\"n1\"} 1"));

  down = false;
  clock_.advance(10s);
  next = agent.tick();
  EXPECT_TRUE(agent.ready());
  EXPECT_EQ(next, clock_.steady() + 3s);  // the poll comes before the Lease and the next probe
  EXPECT_EQ(stored()["status"]["nics"][0]["name"], "eth0");
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("paceline_agent_lease_renewals_total{node=\"n1\"} 1"));
  EXPECT_THAT(text, HasSubstr("paceline_agent_fabric_writes_total{node=\"n1\"} 1"));
  EXPECT_THAT(text, HasSubstr("nic=\"eth0\""));

  tree.remove("sys/class/net/eth0");
  clock_.advance(30s);
  agent.tick();
  EXPECT_TRUE(stored()["status"]["nics"].empty());
  EXPECT_THAT(metrics.text(), testing::Not(HasSubstr("nic=\"eth0\"")));

  clock_.advance(91s);  // no tick: the loop hangs
  EXPECT_FALSE(agent.healthy());
}

TEST_F(PublisherTest, AnApiServerThatHangsHoldsUpNobodyWhoLooksAtTheNode) {
  const NodeTree tree("cloud-vm");
  NoGpus library;
  Metrics metrics("n1", "0.1.0");
  AgentOptions options;
  options.poll_interval = 5ms;
  options.probe_interval = 20ms;
  SystemClock clock;
  std::promise<void> asked;
  std::promise<void> let_go;
  std::once_flag first;
  cluster_.set_faults([&](const http::Request&) -> std::optional<kube::Fault> {
    std::call_once(first, [&] {
      asked.set_value();
      let_go.get_future().wait();
    });
    return std::nullopt;
  });
  Agent agent(tree.root(), library, *publisher_, metrics, clock, options);
  std::jthread running([&](const std::stop_token& stop) { agent.run(stop); });
  asked.get_future().wait();
  const auto sees = [&] { return metrics.text().find("nic=\"eth0\"") != std::string::npos; };
  while (!sees()) std::this_thread::yield();
  tree.remove("sys/class/net/eth0");
  while (sees()) std::this_thread::yield();
  EXPECT_FALSE(agent.ready()) << "and it has not been heard yet";
  let_go.set_value();
  while (!agent.ready()) std::this_thread::yield();
}

TEST_F(PublisherTest, HowFarInjectionIsStandsInTheConditionWithinAPulse) {
  const NodeTree tree("cloud-vm");
  NoGpus library;
  Metrics metrics("n1", "0.1.0");
  Summary state{false, "NotStaged", "no space left on device"};
  AgentOptions options;
  options.runtime = [&] { return state; };
  Agent agent(tree.root(), library, *publisher_, metrics, clock_, options);
  agent.tick();
  const auto ready = [&] { return condition(stored()["status"], "RuntimeReady"); };
  EXPECT_EQ(ready()["status"], "False");
  EXPECT_EQ(ready()["reason"], "NotStaged");
  EXPECT_EQ(ready()["message"], "no space left on device");
  state = {true, "Served", "0.1.0-1f3a for 128 pods"};
  clock_.advance(3s);
  agent.tick();
  EXPECT_EQ(ready()["status"], "True");
  const auto before = writes();
  clock_.advance(3s);
  agent.tick();
  EXPECT_EQ(writes(), before);  // nothing new: nothing written (the Lease is not due)
}

TEST_F(PublisherTest, WhatPodsAnswerStandsInTheTableAndMakesNoCondition) {
  const NodeTree tree("dgx-h100-like");
  const auto library = read_nvml_json(NodeTree::nvml_json("dgx-h100-like"), "nvml");
  Metrics metrics("n1", "0.1.0");
  Documents documents("n1");
  AgentOptions options;
  options.documents = &documents;
  std::vector<Finding> told;
  options.pods = [&] { return told; };
  Agent agent(tree.root(), **library, *publisher_, metrics, clock_, options);
  agent.tick();
  const auto subjects = [&] {
    std::vector<std::string> all;
    const json table = json::parse(documents.latest()->checks);
    for (const auto& check : table["checks"]) {
      if (check["id"] != "memlock") continue;
      for (const auto& finding : check["findings"])
        all.push_back(finding["status"].get<std::string>() + " " + finding.value("subject", ""));
    }
    return all;
  };
  EXPECT_THAT(subjects(), testing::ElementsAre("unknown "));
  const json before = stored()["status"]["conditions"];
  told = {{"memlock", "pod team/j-w-0-0", Verdict::kFail, "64 KiB", "raise it"}};
  clock_.advance(30s);
  agent.tick();
  EXPECT_THAT(subjects(), testing::ElementsAre("fail pod team/j-w-0-0"));
  EXPECT_EQ(stored()["status"]["conditions"], before) << "a pod says nothing of its node";
}

/// The agent on a machine that changes while it runs.
class ChangingMachine : public PublisherTest {
 protected:
  ChangingMachine() : tree_("two-socket-pcie") {
    auto library = read_nvml_json(NodeTree::nvml_json("two-socket-pcie"), "nvml");
    library_ = std::move(*library);
    // The defaults are tested, because a longer interval would find changes too late.
    AgentOptions options;
    // These files do not exist until a test writes them.
    options.scan = {tree_.folder() / "pci-config", tree_.folder() / "registrations.json"};
    agent_.emplace(tree_.root(), *library_, *publisher_, metrics_, clock_, options);
    agent_->tick();
  }

  /// Acts as the loop for this long: ticks when it asked to be called.
  void run_for(std::chrono::milliseconds time) {
    const auto end = clock_.steady() + time;
    for (auto next = agent_->tick(); next <= end; next = agent_->tick())
      clock_.advance(std::chrono::duration_cast<std::chrono::nanoseconds>(next - clock_.steady()));
    clock_.advance(std::chrono::duration_cast<std::chrono::nanoseconds>(end - clock_.steady()));
  }

  void set_link(bool up) {
    tree_.write("sys/class/infiniband/mlx5_0/ports/1/state", up ? "4: ACTIVE\n" : "1: DOWN\n");
    tree_.write("sys/class/net/ens0/operstate", up ? "up\n" : "down\n");
  }
  json status() const { return stored()["status"]; }
  /// Writes of NodeFabric, without those of the Lease.
  std::uint64_t fabric_writes() {
    const std::string text = metrics_.text();
    const auto at = text.find("paceline_agent_fabric_writes_total{");
    return std::stoul(text.substr(text.find(' ', at)));
  }

  NodeTree tree_;
  std::unique_ptr<GpuLibrary> library_;
  Metrics metrics_{"n1", "0.1.0"};
  std::optional<Agent> agent_;
};

TEST_F(ChangingMachine, ALinkThatGoesDownIsWrittenWithinFiveSeconds) {
  EXPECT_EQ(condition(status(), "FabricHealthy")["status"], "True");
  set_link(false);
  run_for(5s);
  EXPECT_EQ(status()["rdmaDevices"][0]["up"], false);
  EXPECT_EQ(status()["nics"][0]["up"], false);
  EXPECT_EQ(condition(status(), "FabricHealthy")["status"], "False");
}

TEST_F(ChangingMachine, WhatChangesIsInTheMetricsWithinFiveSeconds) {
  const std::string port =
      "paceline_gdr_check_status{node=\"n1\",check=\"port-state\",gpu=\"\",nic=\"mlx5_0\"} ";
  EXPECT_THAT(metrics_.text(), HasSubstr(port + "0\n"));
  set_link(false);
  tree_.write("sys/class/net/ens0/carrier_changes", "3\n");
  run_for(5s);
  EXPECT_THAT(metrics_.text(), HasSubstr(port + "2\n"));
  EXPECT_THAT(metrics_.text(), HasSubstr("paceline_nic_up{node=\"n1\",nic=\"ens0\"} 0"));
  EXPECT_THAT(metrics_.text(),
              HasSubstr("paceline_nic_link_changes_total{node=\"n1\",nic=\"ens0\"} 3"));
  set_link(true);
  run_for(40s);  // a link that was down is believed when it stays
  EXPECT_THAT(metrics_.text(), HasSubstr(port + "0\n"));
  tree_.remove("sys/class/infiniband/mlx5_0");
  run_for(5s);
  EXPECT_THAT(metrics_.text(), testing::Not(HasSubstr("nic=\"mlx5_0\"")));
}

/// Shows the GPUs that the test sets.
class ChosenGpus final : public GpuLibrary {
 public:
  explicit ChosenGpus(std::vector<Gpu> gpus) : gpus(std::move(gpus)) {}
  Result<std::vector<Gpu>> devices() override {
    if (!gpus) return fail(Code::kUnavailable, Origin::kCuda, "Driver Not Loaded", true);
    return *gpus;
  }
  std::optional<std::vector<Gpu>> gpus;
};

TEST_F(ChangingMachine, AGpuThatOnlyTheLibraryLostIsWrittenWithinFiveSeconds) {
  ChosenGpus library(*library_->devices());
  std::vector<std::size_t> probed;
  AgentOptions options;
  options.probed = [&](const Hardware& hardware) { probed.push_back(hardware.gpu.gpus.size()); };
  agent_.emplace(tree_.root(), library, *publisher_, metrics_, clock_, options);
  agent_->tick();
  EXPECT_EQ(condition(status(), "GpuHealthy")["status"], "True");
  const Gpu lost = library.gpus->back();
  library.gpus->pop_back();
  run_for(5s);
  EXPECT_EQ(condition(status(), "GpuHealthy")["status"], "False");
  EXPECT_THAT(condition(status(), "GpuHealthy")["message"].get<std::string>(),
              HasSubstr(lost.pci_address));
  EXPECT_THAT(metrics_.text(), HasSubstr("paceline_node_report_complete{node=\"n1\"} 0"));
  library.gpus->push_back(lost);
  run_for(5s);
  EXPECT_EQ(condition(status(), "GpuHealthy")["status"], "True");
  library.gpus.reset();  // the library answers no more, but the driver is there
  run_for(5s);
  EXPECT_EQ(condition(status(), "GpuHealthy")["status"], "Unknown");
  EXPECT_EQ(probed, (std::vector<std::size_t>{4, 3, 4, 0}));
  tree_.remove("proc/driver/nvidia");  // the driver is gone altogether
  run_for(31s);
  EXPECT_EQ(condition(status(), "GpuHealthy")["status"], "False");
}

TEST_F(ChangingMachine, AFlappingLinkIsOneWriteUntilItSettles) {
  for (int i = 0; i < 10; ++i) {
    set_link(false);
    run_for(5s);
    set_link(true);
    run_for(4s);
  }
  EXPECT_EQ(fabric_writes(), 2U);  // the first report, and that the link is down
  EXPECT_EQ(status()["rdmaDevices"][0]["up"], false);
  run_for(40s);
  EXPECT_EQ(fabric_writes(), 3U);
  EXPECT_EQ(status()["rdmaDevices"][0]["up"], true);
  EXPECT_EQ(status()["rdmaDevices"][0]["rateMbps"], 100000);
}

TEST_F(ChangingMachine, AGpuThatFallsOffTheBusIsWrittenWithinFiveSeconds) {
  tree_.write("sys/bus/pci/devices/0000:81:00.0/config", std::string(64, '\xff'));
  run_for(5s);
  const json healthy = condition(status(), "GpuHealthy");
  EXPECT_EQ(healthy["status"], "False");
  EXPECT_THAT(healthy["message"].get<std::string>(), HasSubstr("0000:81:00.0"));
}

TEST_F(ChangingMachine, ADeviceThatIsTakenAwayIsWrittenWithinFiveSeconds) {
  tree_.remove("sys/class/net/ens1");
  tree_.remove("sys/class/infiniband/mlx5_1");
  run_for(5s);
  EXPECT_EQ(status()["nics"].size(), 1U);
  EXPECT_EQ(status()["rdmaDevices"].size(), 1U);
}

TEST_F(ChangingMachine, StillnessIsNoWork) {
  run_for(10min);
  EXPECT_EQ(fabric_writes(), 1U);
}

TEST_F(ChangingMachine, AFailedCheckIsConditionAndMetric) {
  // Two GPUs have no near NIC: the first failure in the table on this machine.
  EXPECT_EQ(condition(status(), "GpuDirectReady")["status"], "False");
  EXPECT_EQ(condition(status(), "GpuDirectReady")["reason"], "gpu-nic-distance");
  EXPECT_THAT(
      metrics_.text(),
      HasSubstr("paceline_check_status{node=\"n1\",check=\"gpu-nic-distance\",status=\"fail\"} 3"));
  EXPECT_THAT(
      metrics_.text(),
      HasSubstr("paceline_check_status{node=\"n1\",check=\"peermem-loaded\",status=\"pass\"} 1"));
  const auto before = fabric_writes();
  tree_.write("proc/sys/kernel/osrelease", "4.19.0-27-amd64\n");
  tree_.remove("sys/module/nvidia_peermem");
  run_for(31s);
  EXPECT_EQ(condition(status(), "GpuDirectReady")["reason"], "dmabuf");
  EXPECT_EQ(fabric_writes(), before + 1);
  EXPECT_THAT(metrics_.text(), testing::Not(HasSubstr("check=\"peermem-loaded\",status=\"pass\"")));
}

TEST_F(ChangingMachine, TakesWhatTheProbeReported) {
  EXPECT_THAT(metrics_.text(), HasSubstr("check=\"dmabuf\",status=\"unknown\"} 1"));
  Registrations found;
  found.attempts = {{Step::kDmaBuf, "mlx5_0", "0000:19:00.0", Outcome::kDone, 0, ""}};
  tree_.write("registrations.json", registrations_json(found));
  run_for(31s);
  EXPECT_THAT(metrics_.text(), HasSubstr("check=\"dmabuf\",status=\"pass\"} 1"));
  tree_.write("registrations.json", "{\"version\":");
  run_for(31s);
  EXPECT_THAT(metrics_.text(), testing::Not(HasSubstr("check=\"dmabuf\",status=\"pass\"}")));
}

TEST_F(ChangingMachine, TakesWhatWasLookedAtWithPrivilegeAndTellsWhen) {
  EXPECT_THAT(metrics_.text(), testing::Not(HasSubstr("paceline_agent_look_timestamp_seconds{")));
  ASSERT_TRUE(
      write_pci_snapshot(tree_.root(), tree_.folder() / "pci-config", WallTime(1'750'000'000s)));
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(tree_.folder() / "sys/devices")) {
    if (entry.is_regular_file() && entry.path().filename() == "config")
      std::filesystem::resize_file(entry.path(), 64);
  }
  Registrations found;
  found.taken = WallTime(1'750'000'010s);
  tree_.write("registrations.json", registrations_json(found));
  run_for(31s);
  const auto seconds = [&](const std::string& of) {
    const std::string text = metrics_.text();
    const std::string name =
        "paceline_agent_look_timestamp_seconds{node=\"n1\",of=\"" + of + "\"} ";
    const auto at = text.find(name);
    return at == std::string::npos ? 0.0 : std::stod(text.substr(at + name.size()));
  };
  EXPECT_EQ(seconds("pci-config"), 1'750'000'000.0);
  EXPECT_EQ(seconds("registrations"), 1'750'000'010.0);
  EXPECT_THAT(metrics_.text(), HasSubstr("check=\"pcie-mrrs\",status=\"pass\"}"));
  tree_.remove("pci-config");
  run_for(31s);
  EXPECT_EQ(seconds("pci-config"), 0.0);
  EXPECT_THAT(metrics_.text(), testing::Not(HasSubstr("check=\"pcie-mrrs\",status=\"pass\"}")));
}

TEST_F(ChangingMachine, WorkThatRaisesALinkWritesNothing) {
  tree_.write("sys/bus/pci/devices/0000:81:00.0/current_link_speed", "2.5 GT/s PCIe\n");
  run_for(31s);
  EXPECT_THAT(metrics_.text(), HasSubstr("check=\"pcie-link\",status=\"unknown\"} 1"));
  EXPECT_EQ(fabric_writes(), 1U);
}

TEST_F(ChangingMachine, CountsEachCheckOfTheTableAndNothingElse) {
  const std::string text = metrics_.text();
  std::size_t series = 0;
  for (auto at = text.find("paceline_check_status{"); at != std::string::npos;
       at = text.find("paceline_check_status{", at + 1))
    ++series;
  std::size_t known = 0;
  for (const auto& check : checks()) {
    std::size_t statuses = 0;
    for (const char* status : {"skip", "pass", "unknown", "warn", "fail"}) {
      if (text.find("check=\"" + std::string(check.id) + "\",status=\"" + status + "\"}") !=
          std::string::npos)
        ++statuses;
    }
    EXPECT_GE(statuses, 1U) << check.id;
    known += statuses;
  }
  EXPECT_EQ(series, known);
}

TEST_F(ChangingMachine, RisingCountersMoveMetricsAndWriteNothing) {
  const std::string port = "sys/class/infiniband/mlx5_0/ports/1/counters/";
  for (int minute = 0; minute < 30; ++minute) {
    tree_.write(port + "symbol_error", std::to_string(minute) + "\n");
    tree_.write(port + "link_downed", std::to_string(minute / 10) + "\n");
    run_for(1min);
  }
  EXPECT_EQ(fabric_writes(), 1U);
  EXPECT_THAT(
      metrics_.text(),
      HasSubstr("paceline_check_status{node=\"n1\",check=\"port-errors\",status=\"warn\"} 1"));
  run_for(70min);  // the rise is older than the window
  EXPECT_THAT(
      metrics_.text(),
      HasSubstr("paceline_check_status{node=\"n1\",check=\"port-errors\",status=\"pass\"} 2"));
}

}  // namespace
}  // namespace paceline::agent
