// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "agent/report/metrics.hpp"
#include "agent/report/node_fabric.hpp"
#include "agent/report/publisher.hpp"
#include "common/base/timestamp.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/report/report_fixture.hpp"

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
  EXPECT_EQ(
      status["nics"][0].dump(),
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

TEST(Fabric, GpusThatCannotBeReadMayBeWell) {
  const auto healthy = [](const Hardware& hardware) -> std::string {
    const json status = fabric_status(hardware, "0.1.0");
    for (const auto& condition : status["conditions"]) {
      if (condition["type"] == "GpuHealthy") return condition["status"].get<std::string>();
    }
    return {};
  };
  Hardware hardware = recorded_machine("dgx-h100-like");
  std::swap(hardware.gpu.gpus, hardware.gpu.unreadable);
  hardware.gpu.problem = "8 NVIDIA GPU(s) on the PCI bus, but NVML does not answer";
  hardware.gpu.library_problem = "libnvidia-ml.so.1: cannot open shared object file";
  EXPECT_EQ(healthy(hardware), "False");
  hardware.gpu.driver_is_loaded = true;
  EXPECT_EQ(healthy(hardware), "Unknown");
  // One that fell off the bus is a fault, whether the library answers or not.
  const auto gpu = std::ranges::find_if(
      hardware.pci, [](const PciFunction& function) { return function.address == "0000:52:00.0"; });
  ASSERT_NE(gpu, hardware.pci.end());
  gpu->answers = false;
  EXPECT_EQ(healthy(hardware), "False");
  gpu->answers = true;
  hardware.gpu.library_problem.clear();
  EXPECT_EQ(healthy(hardware), "False");
}

TEST(Fabric, StaysWithinItsBoundAndKeepsWhatMattersMost) {
  Hardware hardware = machine();
  hardware.cpu.model = std::string(5000, 'x');
  for (int i = 0; i < 2000; ++i) {
    hardware.nics.push_back(
        {"down" + std::to_string(i), "driver", std::nullopt, 1500, 0, "0000:18:00.0", false});
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

TEST(Fabric, TellsDistancesAndWhatPodsAskFor) {
  Hardware hardware = recorded_machine("dgx-h100-like");
  hardware.gpu.gpus[0].mig_profiles = {"1g.10gb", "1g.10gb+me", "1g.10gb"};
  json status = fabric_status(hardware, "0.1.0");
  EXPECT_EQ(status["distance"]["nics"][8], "eth0");
  EXPECT_EQ(
      status["distance"]["rows"][4].dump(),
      R"({"gpu":"GPU4","gpus":"NV18 NV18 NV18 NV18 X NV18 NV18 NV18","nics":"SYS SYS SYS SYS PIX NODE NODE NODE SYS"})");
  EXPECT_EQ(status["gpus"][0]["migDevices"].dump(),
            R"({"nvidia.com/mig-1g.10gb":2,"nvidia.com/mig-1g.10gb.me":1})");
  EXPECT_EQ(status["gpus"][0]["nvlinks"], 18);
  EXPECT_EQ(
      status["rdmaDevices"][3].dump(),
      R"({"linkLayer":"InfiniBand","name":"mlx5_3","numaNode":0,"pciAddress":"0000:5e:00.0","rail":3,"rateMbps":400000,"up":true})");
  stamp_times(status, nullptr, WallTime{});
  EXPECT_LE(status.dump().size(), kMaxFabricBytes / 2);
  EXPECT_EQ(fabric_status(recorded_machine("gb200-like"), "0")["nvlinkDomain"],
            "5a3c1f6e-0000-4000-8000-00000000abcd/32766");
  EXPECT_EQ(fabric_status(recorded_machine("cloud-vm-gpu"), "0")["virtualTopology"], true);
  EXPECT_FALSE(fabric_status(recorded_machine("nothing"), "0").contains("distance"));
}

TEST(Fabric, ALinkThatGpusCountOnIsMissed) {
  const json down =
      condition(fabric_status(recorded_machine("dgx-h100-like"), "0"), "FabricHealthy");
  EXPECT_EQ(down["status"], "False");
  EXPECT_THAT(down["message"].get<std::string>(), HasSubstr("mlx5_5 has no link"));
  Hardware hardware = recorded_machine("dgx-a100-like");
  EXPECT_EQ(condition(fabric_status(hardware, "0"), "FabricHealthy")["status"], "True");
  hardware.gpu.gpus[2].nvlinks[3].active = false;
  EXPECT_THAT(
      condition(fabric_status(hardware, "0"), "FabricHealthy")["message"].get<std::string>(),
      HasSubstr("GPU2 has 11 of 12 NVLinks"));
  // No GPU is near this one.
  Hardware far = recorded_machine("two-socket-pcie");
  far.rdma[1].ports[0].state = "DOWN";
  EXPECT_EQ(condition(fabric_status(far, "0"), "FabricHealthy")["status"], "True");
}

TEST(Fabric, ANodeOfManyDevicesStaysWithinItsBound) {
  Hardware hardware = recorded_machine("dgx-h100-like");
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

/// Every field of `value` must be in `schema`: the API server drops other fields, and the agent
/// would write them again for ever.
void expect_known(const json& value, const YAML::Node& schema, const std::string& where) {
  if (value.is_array()) {
    EXPECT_LE(value.size(), schema["maxItems"].as<std::size_t>()) << where;
    for (const auto& entry : value) expect_known(entry, schema["items"], where + "[]");
  } else if (value.is_object()) {
    for (const auto& [name, field] : value.items()) {
      const YAML::Node known = schema["additionalProperties"] ? schema["additionalProperties"]
                                                              : schema["properties"][name];
      ASSERT_TRUE(known.IsDefined()) << where << "." << name << " is not in crds/nodefabrics.yaml";
      expect_known(field, known, where + "." + name);
    }
  } else if (value.is_string()) {
    EXPECT_EQ(schema["type"].as<std::string>(), "string") << where;
    EXPECT_LE(value.get<std::string>().size(), schema["maxLength"].as<std::size_t>(2048)) << where;
  } else {
    EXPECT_EQ(schema["type"].as<std::string>(), value.is_boolean() ? "boolean" : "integer")
        << where;
  }
}

TEST(Fabric, HoldsOnlyWhatTheSchemaNames) {
  const YAML::Node crd =
      YAML::LoadFile(std::string(PACELINE_SOURCE_DIR) + "/crds/nodefabrics.yaml");
  const YAML::Node schema =
      crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
  for (const char* name :
       {"dgx-h100-like", "dgx-h100-broken", "dgx-a100-like", "gb200-like", "two-socket-pcie",
        "cloud-vm-gpu", "cloud-vm-rdma", "cloud-vm", "nothing"}) {
    Hardware hardware = recorded_machine(name);
    for (auto& gpu : hardware.gpu.gpus) gpu.mig_profiles = {"1g.10gb"};
    json status = fabric_status(hardware, "0.1.0", checked(name));
    stamp_times(status, nullptr, WallTime{});
    expect_known(status, schema, name);
  }
}

TEST(Fabric, ItsPrintedColumnsShowConditionsThatItHas) {
  const YAML::Node crd =
      YAML::LoadFile(std::string(PACELINE_SOURCE_DIR) + "/crds/nodefabrics.yaml");
  const json status =
      fabric_status(recorded_machine("dgx-a100-like"), "0", checked("dgx-a100-like"));
  int shown = 0;
  for (const auto& column : crd["spec"]["versions"][0]["additionalPrinterColumns"]) {
    const auto path = column["jsonPath"].as<std::string>();
    const auto from = path.find("type==\"");
    if (from == std::string::npos) continue;
    ++shown;
    const auto type = path.substr(from + 7, path.find('"', from + 7) - from - 7);
    EXPECT_FALSE(condition(status, type).empty()) << type;
  }
  EXPECT_EQ(shown, 2);
}

TEST(AgentMetrics, AreAllDocumented) {
  std::string documented;
  for (const char* page : {"/docs/reference/contract.md", "/docs/operate/metrics.md"}) {
    std::ifstream file(std::string(PACELINE_SOURCE_DIR) + page);
    documented.append(std::istreambuf_iterator<char>(file), {});
  }
  Metrics metrics("n1", "0");
  metrics.probed(machine(), 1s);
  metrics.placed(relate(recorded_machine("dgx-h100-like")));
  metrics.checked(checked("nothing"), {{"acs", "GPU0", "mlx5_2", 2}});
  const NodeTree tree("two-socket-pcie");
  metrics.counted(read_device_counters(tree.root(), recorded_machine("two-socket-pcie")),
                  recorded_machine("dgx-h100-like").gpu.gpus);
  std::istringstream lines(metrics.text());
  int families = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    ++families;
    const std::string name = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_THAT(documented, HasSubstr("`" + name + "`"));
  }
  EXPECT_EQ(families, 24);
}

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
  const auto lease =
      json::parse(api_->get(kube::kLeases, "paceline-system", "paceline-agent-n1").value());
  EXPECT_EQ(lease["spec"]["renewTime"], format_micro_time(clock_.wall()));
  EXPECT_EQ(lease["spec"]["holderIdentity"], "agent-x");
  EXPECT_EQ(lease["metadata"]["ownerReferences"][0]["uid"], node_uid_);
}

TEST(Metrics, TheDistanceOfAGpuAndANicIsOneSeriesThatGoesWithIt) {
  Metrics metrics("n1", "0");
  Fabric fabric = relate(recorded_machine("dgx-h100-like"));
  metrics.placed(fabric);
  const auto ways = [&] {
    std::istringstream lines(metrics.text());
    std::set<std::string> found;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("paceline_topology_distance{")) found.insert(line);
    }
    return found;
  };
  const auto rdma =
      std::ranges::count_if(fabric.nics, [](const FabricDevice& nic) { return nic.rdma; });
  const auto before = ways();
  EXPECT_EQ(before.size(), fabric.gpus.size() * static_cast<std::size_t>(rdma));
  EXPECT_TRUE(before.contains("paceline_topology_distance{node=\"n1\",class=\"" +
                              to_string(fabric.gpu_nic[0][0]) + "\",gpu=\"GPU0\",nic=\"" +
                              fabric.nics[0].label + "\"} 1"))
      << metrics.text();
  fabric.gpu_nic[0][0] = {PathClass::kSys, 0};
  metrics.placed(fabric);
  EXPECT_NE(ways(), before);
  EXPECT_EQ(ways().size(), before.size()) << "no pair has two classes";
  metrics.placed({});
  EXPECT_TRUE(ways().empty());
}

}  // namespace
}  // namespace paceline::agent
