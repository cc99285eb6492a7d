// SPDX-License-Identifier: Apache-2.0
// Verdicts on set-ups that users describe as sound: guests and hosts of virtual machines, MIG,
// switchdev, addresses of pods. None may fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"
#include "agent/checks/summary.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/hardware/nvlinks.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record/record.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "agent/report/node_fabric.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Hardware machine_of(const NodeTree& tree, std::string_view fixture) {
  const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
  return library ? probe_hardware(tree.root(), **library) : Hardware{};
}

/// The ids of the checks that fail.
std::vector<std::string> failing(const std::vector<Finding>& findings) {
  std::vector<std::string> ids;
  for (const Check& check : checks()) {
    if (worst(findings, check.id) == Verdict::kFail) ids.emplace_back(check.id);
  }
  return ids;
}

/// The evidence of a check for a subject; empty if there is none.
std::string evidence(const std::vector<Finding>& findings, std::string_view id,
                     std::string_view subject = {}) {
  for (const auto& finding : findings) {
    if (finding.id == id && finding.subject == subject) return finding.evidence;
  }
  return {};
}

/// The status of a condition of the NodeFabric.
std::string condition_of(const Hardware& machine, std::string_view type) {
  const nlohmann::json status = fabric_status(machine, "0.1.0");
  for (const auto& condition : status["conditions"]) {
    if (condition["type"] == type) return condition["status"].get<std::string>();
  }
  return {};
}

void turn_links_off(Gpu& gpu) {
  for (auto& link : gpu.nvlinks) link = {link.link, false, NvLinkRemote::kUnknown, {}};
}

/// Changes one byte of a function's configuration space.
void patch(const NodeTree& tree, const std::string& address, std::size_t at, char value) {
  auto config = read_bytes(tree.folder() / pci_file(address, "config"), 4096).value_or("");
  ASSERT_LT(at, config.size()) << address;
  config[at] = value;
  tree.write(pci_file(address, "config"), config);
}

// NVIDIA/nccl issues 1464 and 1674: GPUs and NICs of a board, each behind a root port of QEMU.
TEST(KvmGuest, EmulatedRootPortsAndClosedNvlinksFailNothing) {
  const NodeTree tree(kRootPorts);
  const auto findings = findings_of(tree, kRootPorts);
  EXPECT_THAT(failing(findings), IsEmpty());
  EXPECT_THAT(evidence(findings, "gpu-nic-distance"), HasSubstr("distances there mean nothing"));
  EXPECT_THAT(evidence(findings, "nvlink"), HasSubstr("no NVLink leads anywhere"));
  const Hardware machine = machine_of(tree, kRootPorts);
  EXPECT_TRUE(relate(machine).virtual_topology);
  EXPECT_EQ(condition_of(machine, "FabricHealthy"), "True");
}

TEST(KvmGuest, ARealRootPortIsNoHypervisors) {
  const NodeTree tree(kRootPorts);
  for (const char* port : {"0000:00:02.0", "0000:00:02.1", "0000:00:02.2", "0000:00:02.3"})
    tree.write(pci_file(port, "vendor"), "0x8086\n");
  const auto findings = findings_of(tree, kRootPorts);
  EXPECT_THAT(failing(findings), ElementsAre("gpu-nic-distance", "nvlink"));
}

constexpr std::size_t kAcsControl = 0x106;    // where the fixtures have it
constexpr std::size_t kDeviceControl = 0x48;  // bits 7:5 are the payload size

TEST(Bridges, RedirectsThatTheKernelTurnedOffLeaveUpstreamForwardingOn) {
  const NodeTree tree(kH100);
  for (const char* bridge : {"0000:16:00.0", "0000:17:00.0", "0000:17:02.0"})
    patch(tree, bridge, kAcsControl, 0x11);
  const auto findings = findings_of(tree, kH100);
  EXPECT_EQ(worst(findings, "acs"), Verdict::kPass);
  EXPECT_EQ(evidence(findings, "acs", "0000:17:00.0"), "control 0x0011");
}

TEST(Bridges, RootPortsWithoutASwitchRedirectNothing) {
  // GPU 1 and the NIC are behind two root ports, so their traffic passes the root complex anyway.
  const NodeTree tree(kSockets);
  patch(tree, "0000:16:03.0", kAcsControl, 0x1d);
  const auto findings = findings_of(tree, kSockets);
  EXPECT_EQ(worst(findings, "acs"), Verdict::kPass);
  EXPECT_EQ(evidence(findings, "acs", "0000:16:03.0"), "");
}

TEST(Bridges, MayTakeLargerPayloadsThanTheDevicesSend) {
  const NodeTree tree(kH100);
  patch(tree, "0000:17:00.0", kDeviceControl, 0x50);  // 512 bytes, relaxed ordering
  auto findings = findings_of(tree, kH100);
  EXPECT_EQ(worst(findings, "pcie-mps"), Verdict::kPass);
  EXPECT_THAT(evidence(findings, "pcie-mps", "GPU0 mlx5_0"), HasSubstr("bridges take more"));
  patch(tree, "0000:17:00.0", kDeviceControl, 0x10);  // 128 bytes
  findings = findings_of(tree, kH100);
  EXPECT_EQ(worst(findings, "pcie-mps"), Verdict::kFail);
}

// Bottlerocket pull request 4418 and NVIDIA/nccl issue 1716: a GPU in MIG mode has no NVLink.
TEST(Mig, NvlinksOfAPartitionedGpuAreNotMissed) {
  const NodeTree tree(kA100);
  const auto partition = [](Hardware& machine) {
    auto& gpu = machine.gpu.gpus[2];
    gpu.mig = true;
    turn_links_off(gpu);
  };
  const auto findings = findings_of(tree, kA100, partition);
  EXPECT_THAT(failing(findings), IsEmpty());
  EXPECT_THAT(evidence(findings, "nvlink", "GPU2"), HasSubstr("is in MIG mode"));
  EXPECT_THAT(evidence(findings, "nvlink", "GPU3"), HasSubstr("12 of 12 links are active"));
  Hardware machine = machine_of(tree, kA100);
  partition(machine);
  EXPECT_EQ(condition_of(machine, "FabricHealthy"), "True");
  // The same links of a GPU that is not in MIG mode are a fault.
  machine.gpu.gpus[2].mig = false;
  EXPECT_EQ(condition_of(machine, "FabricHealthy"), "False");
}

TEST(Mig, NeighboursOnABoardWithoutSwitchesLoseTheirLinksToIt) {
  // 4 GPUs, 4 links between each two, as on the A100 board with 4 GPUs; GPU 0 is in MIG mode.
  Hardware machine = machine_of(NodeTree(kSockets), kSockets);
  auto& gpus = machine.gpu.gpus;
  ASSERT_EQ(gpus.size(), 4U);
  for (std::size_t a = 0; a < 4; ++a) {
    gpus[a].model = "NVIDIA A100-SXM4-80GB";
    for (std::size_t b = 0; b < 4; ++b) {
      for (int i = 0; i < 4 && a != b; ++i)
        gpus[a].nvlinks.push_back({static_cast<int>(gpus[a].nvlinks.size()), a != 0 && b != 0,
                                   NvLinkRemote::kGpu, gpus[b].pci_address});
    }
  }
  gpus[0].mig = true;
  EXPECT_EQ(expected_nvlinks(machine, gpus[0]), std::nullopt);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(expected_nvlinks(machine, gpus[i]), 8);
  gpus[3].nvlinks[5].active = false;
  EXPECT_GT(expected_nvlinks(machine, gpus[3]).value_or(0), active_nvlinks(gpus[3]));
}

TEST(Mig, ARecordingKeepsTheModeWithoutDevices) {
  Gpu gpu;
  gpu.pci_address = "0000:1b:00.0";
  gpu.mig = true;
  const auto read = read_nvml_json(nvml_json_text(std::vector<Gpu>{gpu}), "recorded");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE((*read)->devices()->front().mig);
  gpu.mig = false;
  const auto plain = read_nvml_json(nvml_json_text(std::vector<Gpu>{gpu}), "recorded");
  ASSERT_TRUE(plain);
  EXPECT_FALSE((*plain)->devices()->front().mig);
}

/// A PCI function beside the one at `address`.
void add_function(const NodeTree& tree, const std::string& address, const std::string& added) {
  const auto folder =
      std::filesystem::canonical(tree.folder() / pci_file(address, "")).parent_path();
  std::filesystem::create_directory(folder / added);
  std::filesystem::create_symlink(folder / added, tree.folder() / "sys/bus/pci/devices" / added);
  for (const char* file : {"vendor", "device", "class"})
    std::filesystem::copy_file(folder / address / file, folder / added / file);
}

/// The machine without the GPU at `address` in NVML's answer.
std::vector<Finding> findings_without(const NodeTree& tree, std::string_view fixture,
                                      const std::string& address, Hardware* machine = nullptr) {
  auto answer = nlohmann::json::parse(NodeTree::nvml_json(fixture));
  auto& devices = answer["devices"];
  for (std::size_t i = devices.size(); i-- > 0;) {
    if (devices[i]["pciAddress"] == address) devices.erase(i);
  }
  const auto library = read_nvml_json(answer.dump(), fixture);
  EXPECT_TRUE(library);
  const Hardware hardware = probe_hardware(tree.root(), **library);
  if (machine != nullptr) *machine = hardware;
  return run_checks(Node(hardware, read_settings(tree.root(), hardware)));
}

// The vGPU guide of NVIDIA: sriov-manage -e makes virtual functions of the GPU's own PCI class.
TEST(VgpuHost, VirtualFunctionsAreNoMissingGpus) {
  const NodeTree tree(kSockets);
  const auto before = findings_of(tree, kSockets);
  for (const char* added : {"0000:91:00.4", "0000:91:00.5", "0000:91:00.6"}) {
    add_function(tree, "0000:91:00.0", added);
    std::filesystem::create_symlink("../0000:91:00.0", tree.folder() / pci_file(added, "physfn"));
  }
  EXPECT_EQ(findings_of(tree, kSockets), before);
  EXPECT_EQ(condition_of(machine_of(tree, kSockets), "GpuHealthy"), "True");
}

// KubeVirt's host devices: the GPU is bound to vfio-pci, so NVML does not show it.
TEST(KubevirtHost, AGpuThatIsKeptForGuestsIsTold) {
  const NodeTree tree(kSockets);
  const std::string address = "0000:91:00.0";
  EXPECT_EQ(worst(findings_without(tree, kSockets, address), "gpu-health"), Verdict::kFail);
  const auto driver = tree.folder() / "sys/bus/pci/drivers/vfio-pci";
  std::filesystem::create_directories(driver);
  std::filesystem::create_symlink(driver, tree.folder() / pci_file(address, "driver"));
  // A sleeping device that a VFIO driver holds reads as ones.
  tree.write(pci_file(address, "config"), std::string(64, '\xff'));
  Hardware machine;
  const auto findings = findings_without(tree, kSockets, address, &machine);
  EXPECT_EQ(worst(findings, "gpu-health"), Verdict::kPass);
  EXPECT_THAT(evidence(findings, "gpu-health", address), HasSubstr("is bound to vfio-pci"));
  EXPECT_EQ(machine.gpu.problem, "");
  EXPECT_EQ(condition_of(machine, "GpuHealthy"), "True");
}

/// A network device beside that of an RDMA device, as switchdev shows a virtual function's port.
void add_representor(const NodeTree& tree, const std::string& nic, const std::string& name,
                     const std::string& port) {
  const auto folder =
      std::filesystem::canonical(tree.folder() / "sys/class/infiniband" / nic / "device");
  std::filesystem::create_directories(folder / "net" / name);
  std::filesystem::create_symlink(folder / "net" / name, tree.folder() / "sys/class/net" / name);
  std::filesystem::create_symlink("../../../" + folder.filename().string(),
                                  folder / "net" / name / "device");
  const std::string net = "sys/class/net/" + name + "/";
  tree.write(net + "type", "1\n");
  tree.write(net + "mtu", "1500\n");
  tree.write(net + "operstate", "up\n");
  tree.write(net + "phys_port_name", port + "\n");
}

// sriov-network-operator pull request 75: from kernel 5.8 on, representors are in the physical
// function's folder net. Their form: sriovnet pull request 72.
TEST(Switchdev, RepresentorsAreNotNetworkDevicesOfTheNic) {
  const NodeTree tree(kA100);
  tree.write("sys/class/net/eth0/phys_port_name", "p0\n");
  const Hardware before = machine_of(tree, kA100);
  const auto said = findings_of(tree, kA100);
  add_representor(tree, "mlx5_0", "eth0r0", "pf0vf0");
  add_representor(tree, "mlx5_0", "eth0r1", "pf0sf88");
  add_representor(tree, "mlx5_0", "eth0r2", "c1pf0vf3");
  add_representor(tree, "mlx5_0", "eth0r3", "c1pf0");
  EXPECT_EQ(machine_of(tree, kA100), before);
  EXPECT_EQ(findings_of(tree, kA100), said);
  EXPECT_THAT(before.rdma[0].netdevs, ElementsAre("eth0"));
  add_representor(tree, "mlx5_0", "eth0p1", "p1");  // a port of the NIC itself
  EXPECT_EQ(machine_of(tree, kA100).nics.size(), before.nics.size() + 1);
}

// A guest of DigitalOcean with 8 B300: QEMU copies the switches, and each GPU has two virtual
// functions of a ConnectX below its own one.
TEST(GuestWithSwitches, VirtualFunctionsHaveNoDeviceControl) {
  const NodeTree tree(kH100);
  for (int nic = 0; nic < 8; ++nic) {
    const auto device = std::filesystem::canonical(
        tree.folder() / ("sys/class/infiniband/mlx5_" + std::to_string(nic)) / "device");
    const std::string address = device.filename().string();
    tree.write(pci_file(address, "device"), "0x101e\n");
    patch(tree, address, kDeviceControl, 0);  // 128 bytes, strict order
    patch(tree, address, kDeviceControl + 1, 0);
  }
  const auto findings = findings_of(tree, kH100);
  EXPECT_THAT(failing(findings), ElementsAre("port-state"));  // mlx5_5 has no link
  EXPECT_EQ(worst(findings, "pcie-mps"), Verdict::kSkip);
  EXPECT_EQ(worst(findings, "pcie-mrrs"), Verdict::kSkip);
  EXPECT_EQ(worst(findings, "pcie-relaxed-ordering"), Verdict::kPass);  // that of the GPUs
}

// The same guests move a NIC's network device into the pod that uses it (host-device).
TEST(PodNetworks, ANetworkDeviceThatAPodHasIsNotMissed) {
  const NodeTree tree(kA100);
  const std::string port = "sys/class/infiniband/mlx5_3/ports/1/";
  for (const char* index : {"2", "3"})
    tree.write(port + "gids/" + index, "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(worst(findings_of(tree, kA100), "gid"), Verdict::kFail);
  std::filesystem::remove_all(std::filesystem::canonical(tree.folder() / "sys/class/net/eth3"));
  tree.remove("sys/class/net/eth3");
  const auto findings = findings_of(tree, kA100);
  EXPECT_EQ(worst(findings, "gid"), Verdict::kPass);
  EXPECT_THAT(evidence(findings, "gid", "mlx5_3/1"), HasSubstr("a pod may have it"));
  for (const char* id : {"mtu", "pfc-ecn"}) {
    EXPECT_EQ(worst(findings, id), Verdict::kPass) << id;
    EXPECT_THAT(evidence(findings, id, "mlx5_3"), HasSubstr("a pod may have it")) << id;
  }
}

// sriov-network-operator pull request 864: NVIDIA's guide for Grace asks for
// iommu.passthrough=0, and NVIDIA's kernels pass through by themselves only from 6.11 on.
TEST(Grace, ATranslatingIommuCostsSpeedAtMost) {
  const auto translate = [](const NodeTree& tree) {
    for (const auto& group : list_names(tree.folder() / "sys/kernel/iommu_groups"))
      tree.write("sys/kernel/iommu_groups/" + group + "/type", "DMA-FQ\n");
  };
  const NodeTree tray(kTray);
  translate(tray);
  EXPECT_EQ(worst(findings_of(tray, kTray), "iommu"), Verdict::kWarn);
  const NodeTree others(kH100);
  translate(others);
  EXPECT_EQ(worst(findings_of(others, kH100), "iommu"), Verdict::kFail);
}

// NVIDIA/nccl issues 1573 and 1796: macvlans of pods have the addresses, the NICs have none.
TEST(PodNetworks, NicsWithoutAddressesMayBeMeant) {
  const NodeTree tree(kA100);
  const auto port_of = [](int nic) {
    return "sys/class/infiniband/mlx5_" + std::to_string(nic) + "/ports/1/";
  };
  for (int nic = 0; nic < 8; ++nic) {
    for (const char* index : {"2", "3"})
      tree.write(port_of(nic) + "gids/" + index, "0000:0000:0000:0000:0000:0000:0000:0000\n");
  }
  auto findings = findings_of(tree, kA100);
  EXPECT_EQ(worst(findings, "gid"), Verdict::kWarn);
  EXPECT_THAT(evidence(findings, "gid", "mlx5_3/1"), HasSubstr("right only where pods bring"));
  EXPECT_NE(gpu_direct_ready(findings).good, false);
  // A pod runs on two of the NICs: its addresses say nothing of the others.
  for (int nic : {0, 1}) {
    tree.write(port_of(nic) + "gids/3", "0000:0000:0000:0000:0000:ffff:0a98:000c\n");
    tree.write(port_of(nic) + "gid_attrs/ndevs/3", "net1\n");
  }
  findings = findings_of(tree, kA100);
  EXPECT_THAT(evidence(findings, "gid", "mlx5_0/1"), HasSubstr("GID 3 is RoCE v2 with an IPv4"));
  EXPECT_EQ(worst(findings, "gid"), Verdict::kWarn);
  // An address of the node itself on one NIC is missed on the others.
  tree.write(port_of(0) + "gid_attrs/ndevs/3", "eth0\n");
  EXPECT_EQ(worst(findings_of(tree, kA100), "gid"), Verdict::kFail);
}

}  // namespace
}  // namespace paceline::agent
