// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "agent/agent.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "agent/report/fabric.hpp"
#include "agent/report/publisher.hpp"
#include "common/base/timestamp.hpp"
#include "common/kube/fake/cluster.hpp"
#include "tests/unit/agent/node_tree.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using namespace std::chrono_literals;

Hardware machine() {
  Hardware hardware;
  hardware.cpu = {"A CPU", 4, 8, {{0, "0-7", 65536}}};
  hardware.nics = {{"eth0", "mlx5_core", 100000, 9000, 0, "0000:18:00.0", true}};
  hardware.gpu.gpus = {{0, "A GPU", 81559, 0, "0000:1b:00.0"}};
  return hardware;
}

TEST(Fabric, SaysOnlyWhatIsKnown) {
  Hardware hardware = machine();
  hardware.nics[0].speed_mbps.reset();
  hardware.nics[0].numa_node.reset();
  const json status = fabric_status(hardware, "0.1.0");
  EXPECT_EQ(status["nics"][0].dump(),
            R"({"driver":"mlx5_core","mtu":9000,"name":"eth0","pciAddress":"0000:18:00.0","up":true})");
  EXPECT_EQ(status["gpus"][0]["numaNode"], 0);
  EXPECT_EQ(status["cpu"]["numaNodes"][0].dump(), R"({"cpus":"0-7","id":0,"memoryMiB":65536})");
  EXPECT_EQ(status["conditions"][0]["status"], "True");
}

TEST(Fabric, AProblemIsACondition) {
  Hardware hardware = machine();
  hardware.gpu.problem = "a GPU fell\n off the bus";
  const json condition = fabric_status(hardware, "0.1.0")["conditions"][0];
  EXPECT_EQ(condition["status"], "False");
  EXPECT_EQ(condition["reason"], "GPUsNotReadable");
  EXPECT_EQ(condition["message"], "a GPU fell? off the bus");
}

TEST(Fabric, StaysWithinItsBoundAndKeepsWhatMattersMost) {
  Hardware hardware = machine();
  hardware.cpu.model = std::string(5000, 'x');
  for (int i = 0; i < 2000; ++i) {
    hardware.nics.push_back({"down" + std::to_string(i), "driver", std::nullopt, 1500, 0, "0000:18:00.0", false});
  }
  hardware.nics.push_back({"last", "driver", 1000, 1500, 0, "0000:19:00.0", true});
  json status = fabric_status(hardware, "0.1.0");
  stamp_times(status, nullptr, WallTime{});
  EXPECT_LE(status.dump().size(), kMaxFabricBytes);
  EXPECT_EQ(status["conditions"][0]["reason"], "TooManyDevices");
  EXPECT_EQ(status["nics"][0]["name"], "eth0");
  EXPECT_EQ(status["nics"].back()["name"], "last");
  EXPECT_EQ(status["gpus"].size(), 1U);
}

Hardware fixture(std::string_view name) {
  const NodeTree tree(name);
  const auto library = read_nvml_json(NodeTree::nvml_json(name), name);
  return library ? probe_hardware(tree.root(), **library) : Hardware{};
}

const json& condition(const json& status, std::string_view type) {
  static const json kNone = json::object();
  for (const auto& entry : status["conditions"]) {
    if (entry["type"] == type) return entry;
  }
  return kNone;
}

TEST(Fabric, TellsDistancesAndWhatPodsAskFor) {
  Hardware hardware = fixture("dgx-h100-like");
  hardware.gpu.gpus[0].mig_profiles = {"1g.10gb", "1g.10gb+me", "1g.10gb"};
  json status = fabric_status(hardware, "0.1.0");
  EXPECT_EQ(status["distance"]["nics"][8], "eth0");
  EXPECT_EQ(
      status["distance"]["rows"][4].dump(),
      R"({"gpu":"GPU4","gpus":"NV18 NV18 NV18 NV18 X NV18 NV18 NV18","nics":"SYS SYS SYS SYS PIX NODE NODE NODE SYS"})");
  EXPECT_EQ(status["gpus"][0]["migDevices"].dump(), R"({"nvidia.com/mig-1g.10gb":2,"nvidia.com/mig-1g.10gb.me":1})");
  EXPECT_EQ(status["gpus"][0]["nvlinks"], 18);
  EXPECT_EQ(
      status["rdmaDevices"][3].dump(),
      R"({"linkLayer":"InfiniBand","name":"mlx5_3","numaNode":0,"pciAddress":"0000:5e:00.0","rail":3,"rateMbps":400000,"up":true})");
  stamp_times(status, nullptr, WallTime{});
  EXPECT_LE(status.dump().size(), kMaxFabricBytes / 2);
  EXPECT_EQ(fabric_status(fixture("gb200-like"), "0")["nvlinkDomain"], "5a3c1f6e-0000-4000-8000-00000000abcd/32766");
  EXPECT_EQ(fabric_status(fixture("cloud-vm-gpu"), "0")["virtualTopology"], true);
  EXPECT_FALSE(fabric_status(fixture("nothing"), "0").contains("distance"));
}

TEST(Fabric, ALinkThatGpusCountOnIsMissed) {
  const json down = condition(fabric_status(fixture("dgx-h100-like"), "0"), "FabricHealthy");
  EXPECT_EQ(down["status"], "False");
  EXPECT_THAT(down["message"].get<std::string>(), HasSubstr("mlx5_5 has no link"));
  Hardware hardware = fixture("dgx-a100-like");
  EXPECT_EQ(condition(fabric_status(hardware, "0"), "FabricHealthy")["status"], "True");
  hardware.gpu.gpus[2].nvlinks[3].active = false;
  EXPECT_THAT(condition(fabric_status(hardware, "0"), "FabricHealthy")["message"].get<std::string>(),
              HasSubstr("GPU2 has 11 of 12 NVLinks"));
  // No GPU is near to this one.
  Hardware far = fixture("two-socket-pcie");
  far.rdma[1].ports[0].state = "DOWN";
  EXPECT_EQ(condition(fabric_status(far, "0"), "FabricHealthy")["status"], "True");
}

TEST(Fabric, ANodeOfManyDevicesStaysWithinItsBound) {
  Hardware hardware = fixture("dgx-h100-like");
  while (hardware.gpu.gpus.size() < 32) {
    hardware.gpu.gpus.push_back(hardware.gpu.gpus.back());
    ++hardware.gpu.gpus.back().index;
  }
  while (hardware.rdma.size() < 64) {
    hardware.rdma.push_back(hardware.rdma.back());
    hardware.rdma.back().name = "mlx5_" + std::to_string(hardware.rdma.size());
  }
  json status = fabric_status(hardware, "0.1.0");
  stamp_times(status, nullptr, WallTime{});
  EXPECT_LE(status.dump().size(), kMaxFabricBytes);
  EXPECT_EQ(status["gpus"].size(), 32U);
  EXPECT_FALSE(status.contains("distance"));
  EXPECT_EQ(status["conditions"][0]["reason"], "TooManyDevices");
}

/// Every field of `value` must be in `schema`: the API server drops what is not, and the agent would write it again for ever.
void expect_known(const json& value, const YAML::Node& schema, const std::string& where) {
  if (value.is_array()) {
    EXPECT_LE(value.size(), schema["maxItems"].as<std::size_t>()) << where;
    for (const auto& entry : value) expect_known(entry, schema["items"], where + "[]");
  } else if (value.is_object()) {
    for (const auto& [name, field] : value.items()) {
      const YAML::Node known =
          schema["additionalProperties"] ? schema["additionalProperties"] : schema["properties"][name];
      ASSERT_TRUE(known.IsDefined()) << where << "." << name << " is not in crds/nodefabrics.yaml";
      expect_known(field, known, where + "." + name);
    }
  } else if (value.is_string()) {
    EXPECT_EQ(schema["type"].as<std::string>(), "string") << where;
    EXPECT_LE(value.get<std::string>().size(), schema["maxLength"].as<std::size_t>(2048)) << where;
  } else {
    EXPECT_EQ(schema["type"].as<std::string>(), value.is_boolean() ? "boolean" : "integer") << where;
  }
}

TEST(Fabric, HoldsOnlyWhatTheSchemaNames) {
  const YAML::Node crd = YAML::LoadFile(std::string(PACELINE_SOURCE_DIR) + "/crds/nodefabrics.yaml");
  const YAML::Node schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
  for (const char* name :
       {"dgx-h100-like", "dgx-a100-like", "gb200-like", "two-socket-pcie", "cloud-vm-gpu", "cloud-vm", "nothing"}) {
    Hardware hardware = fixture(name);
    for (auto& gpu : hardware.gpu.gpus) gpu.mig_profiles = {"1g.10gb"};
    json status = fabric_status(hardware, "0.1.0");
    stamp_times(status, nullptr, WallTime{});
    expect_known(status, schema, name);
  }
}

/// A fake API server with one Node, and a publisher for it.
class PublisherTest : public testing::Test {
 protected:
  PublisherTest() : api_(kube::make_fake_api(cluster_)) {
    options_.node_name = "n1";
    options_.ns = "paceline-system";
    options_.holder = "agent-x";
    options_.version = "0.1.0";
    create_node();
    publisher_.emplace(*api_, clock_, options_);
  }

  void create_node() {
    auto created = api_->create(kube::kNodes, "", R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}})");
    ASSERT_TRUE(created) << to_string(created.error());
    node_uid_ = json::parse(*created)["metadata"]["uid"];
  }

  json stored() const {
    auto object = api_->get(kube::kNodeFabrics, "", "n1");
    return object ? json::parse(*object) : json();
  }
  std::uint64_t writes() const { return cluster_.counts().writes(); }

  ManualClock clock_;
  kube::FakeCluster cluster_{clock_};
  std::shared_ptr<kube::Api> api_;
  PublisherOptions options_;
  std::string node_uid_;
  std::optional<Publisher> publisher_;
};

TEST_F(PublisherTest, CreatesTheObjectOwnedByItsNode) {
  const auto wrote = publisher_->publish(machine());
  ASSERT_TRUE(wrote) << to_string(wrote.error());
  EXPECT_TRUE(*wrote);
  const json object = stored();
  EXPECT_EQ(object["metadata"]["ownerReferences"][0]["uid"], node_uid_);
  EXPECT_EQ(object["status"]["gpus"][0]["memoryMiB"], 81559);
  EXPECT_EQ(object["status"]["conditions"][0]["lastTransitionTime"], format_time(clock_.wall()));
}

TEST_F(PublisherTest, WritesNothingWhileTheNodeIsStill) {
  ASSERT_TRUE(publisher_->publish(machine()));
  const auto before = writes();
  for (int i = 0; i < 40; ++i) {
    clock_.advance(30s);  // over several resyncs
    EXPECT_EQ(publisher_->publish(machine()).value(), false);
  }
  Publisher restarted(*api_, clock_, options_);
  EXPECT_EQ(restarted.publish(machine()).value(), false);
  EXPECT_EQ(writes(), before);
}

TEST_F(PublisherTest, AChangeIsOneWriteAndKeepsTheTransitionTime) {
  ASSERT_TRUE(publisher_->publish(machine()));
  const auto before = writes();
  const std::string since = stored()["status"]["conditions"][0]["lastTransitionTime"];
  clock_.advance(1h);
  Hardware changed = machine();
  changed.nics[0].up = false;
  EXPECT_EQ(publisher_->publish(changed).value(), true);
  EXPECT_EQ(writes(), before + 1);
  EXPECT_EQ(stored()["status"]["nics"][0]["up"], false);
  EXPECT_EQ(stored()["status"]["conditions"][0]["lastTransitionTime"], since);
  changed.gpu.problem = "lost";
  ASSERT_TRUE(publisher_->publish(changed));
  EXPECT_EQ(stored()["status"]["conditions"][0]["lastTransitionTime"], format_time(clock_.wall()));
  EXPECT_EQ(stored()["status"]["conditions"][1]["type"], "GpuHealthy");
  EXPECT_EQ(stored()["status"]["conditions"][1]["status"], "False");
}

TEST_F(PublisherTest, ADeletedObjectComesBackAtTheNextResync) {
  ASSERT_TRUE(publisher_->publish(machine()));
  ASSERT_TRUE(cluster_.erase(kube::kNodeFabrics, "", "n1"));
  clock_.advance(options_.resync);
  EXPECT_EQ(publisher_->publish(machine()).value(), true);
  EXPECT_FALSE(stored().is_null());
}

TEST_F(PublisherTest, ANodeOfAnotherLifeBecomesTheOwner) {
  ASSERT_TRUE(publisher_->publish(machine()));
  const std::string old_uid = node_uid_;
  ASSERT_TRUE(cluster_.erase(kube::kNodes, "", "n1"));
  create_node();
  ASSERT_NE(node_uid_, old_uid);
  clock_.advance(options_.resync);
  ASSERT_TRUE(publisher_->publish(machine()));
  EXPECT_EQ(stored()["metadata"]["ownerReferences"].size(), 1U);
  EXPECT_EQ(stored()["metadata"]["ownerReferences"][0]["uid"], node_uid_);
}

TEST_F(PublisherTest, ALostAnswerIsRepeatedToTheSameEnd) {
  int patches = 0;
  cluster_.set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method != "PATCH" || ++patches > 2) return std::nullopt;
    kube::Fault fault;
    fault.drop_after_apply = true;
    return fault;
  });
  EXPECT_FALSE(publisher_->publish(machine()));
  EXPECT_FALSE(publisher_->publish(machine()));
  ASSERT_TRUE(publisher_->publish(machine()));
  EXPECT_EQ(stored()["status"]["cpu"]["threads"], 8);
}

TEST_F(PublisherTest, AnUnknownNodeIsNamed) {
  options_.node_name = "nowhere";
  Publisher wrong(*api_, clock_, options_);
  const auto failed = wrong.publish(machine());
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("nowhere"));
  EXPECT_THAT(failed.error().message, HasSubstr("--node-name"));
}

TEST_F(PublisherTest, TheLeaseMovesWithTheClock) {
  ASSERT_TRUE(publisher_->renew());
  clock_.advance(10s);
  ASSERT_TRUE(publisher_->renew());
  const auto lease = json::parse(api_->get(kube::kLeases, "paceline-system", "paceline-agent-n1").value());
  EXPECT_EQ(lease["spec"]["renewTime"], format_micro_time(clock_.wall()));
  EXPECT_EQ(lease["spec"]["holderIdentity"], "agent-x");
  EXPECT_EQ(lease["metadata"]["ownerReferences"][0]["uid"], node_uid_);
}

class NoGpus final : public GpuLibrary {
 public:
  Result<std::vector<Gpu>> devices() override { return fail(Code::kNotFound, Origin::kCuda, "none here"); }
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
  EXPECT_EQ(next, clock_.steady() + 3s);  // the pulse comes before the Lease and the next probe
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

  clock_.advance(91s);  // nobody ticks: the loop hangs
  EXPECT_FALSE(agent.healthy());
}

/// The agent on a machine that changes while it runs.
class ChangingMachine : public PublisherTest {
 protected:
  ChangingMachine() : tree_("two-socket-pcie") {
    auto library = read_nvml_json(NodeTree::nvml_json("two-socket-pcie"), "nvml");
    library_ = std::move(*library);
    // Fewer pulses would find changes too late, so the defaults are what is tested.
    agent_.emplace(tree_.root(), *library_, *publisher_, metrics_, clock_, AgentOptions{});
    agent_->tick();
  }

  /// As the loop runs: tick when it asked to be called, for this long.
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
  /// Writes of NodeFabric: all but the Lease's.
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

}  // namespace
}  // namespace paceline::agent
