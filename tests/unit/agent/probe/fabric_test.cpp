// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/fabric/fabric.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/hardware/accelerator.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "common/contract/accelerators.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Hardware machine_of(const NodeTree& tree, std::string_view fixture) {
  const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
  if (!library) {
    ADD_FAILURE() << library.error().message;
    return {};
  }
  return probe_hardware(tree.root(), **library);
}

Hardware machine_of(std::string_view fixture) { return machine_of(NodeTree(fixture), fixture); }

class GoldenMatrix : public testing::TestWithParam<const char*> {};

TEST_P(GoldenMatrix, IsAsThePublishedLayoutSays) {
  std::ifstream file(std::string(PACELINE_SOURCE_DIR) + "/tests/fixtures/nodes/" + GetParam() +
                     ".matrix");
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(matrix_text(relate(machine_of(GetParam()))), golden);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenMatrix,
                         testing::Values("dgx-h100-like", "dgx-a100-like", "gb200-like",
                                         "two-socket-pcie", "cloud-vm-gpu", "h200-vm",
                                         "cloud-vm-rdma", "xe9680-spare-ports", "aws-p5en-half",
                                         "cloud-vm", "nothing"));

using Places = std::vector<std::string>;

TEST(PciClass, FollowsTheStandardDefinitions) {
  const Places gpu{"pci0000:17", "0000:17:01.0", "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0"};
  const Places same_switch{"pci0000:17", "0000:17:01.0", "0000:18:00.0", "0000:19:01.0",
                           "0000:1b:00.0"};
  const Places cascaded{"pci0000:17",   "0000:17:01.0", "0000:18:00.0", "0000:19:02.0",
                        "0000:1c:00.0", "0000:1d:00.0", "0000:1e:00.0"};
  const Places other_port{"pci0000:17", "0000:17:03.0", "0000:20:00.0"};
  const Places other_root{"pci0000:80", "0000:80:01.0", "0000:81:00.0"};
  const Places same_device{"pci0000:17", "0000:17:01.0", "0000:18:00.0", "0000:19:00.0",
                           "0000:1a:00.1"};
  EXPECT_EQ(pci_class(gpu, same_switch, true), PathClass::kPix);
  EXPECT_EQ(pci_class(gpu, same_device, true), PathClass::kPix);
  EXPECT_EQ(pci_class(gpu, cascaded, true), PathClass::kPxb);
  EXPECT_EQ(pci_class(cascaded, gpu, true), PathClass::kPxb);
  EXPECT_EQ(pci_class(gpu, other_port, true), PathClass::kPhb);
  EXPECT_EQ(pci_class(gpu, other_root, true), PathClass::kNode);
  EXPECT_EQ(pci_class(gpu, other_root, false), PathClass::kSys);
  // Directly on one root bus, as in a virtual machine: no common bridge.
  EXPECT_EQ(pci_class({"pci0000:00", "0000:00:04.0"}, {"pci0000:00", "0000:00:05.0"}, false),
            PathClass::kPhb);
}

TEST(PciClass, AnUnknownNumaNodeIsNotANearOne) {
  Hardware hardware = machine_of("two-socket-pcie");
  EXPECT_EQ(relate(hardware).gpu_gpu[2][3].kind, PathClass::kNode);
  hardware.gpu.gpus[2].numa_node.reset();
  EXPECT_EQ(relate(hardware).gpu_gpu[2][3].kind, PathClass::kSys);
  hardware.cpu.numa_nodes.resize(1);  // with one node there is nothing farther
  EXPECT_EQ(relate(hardware).gpu_gpu[2][3].kind, PathClass::kNode);
}

TEST(NvLinks, CountsLinksOfDirectPeersAndReachesOthersThroughThem) {
  Hardware hardware = machine_of("two-socket-pcie");
  const auto join = [&](std::size_t a, std::size_t b, int count) {
    for (int i = 0; i < count; ++i) {
      hardware.gpu.gpus[a].nvlinks.push_back(
          {i, true, NvLinkRemote::kGpu, hardware.gpu.gpus[b].pci_address});
      hardware.gpu.gpus[b].nvlinks.push_back(
          {i, true, NvLinkRemote::kGpu, hardware.gpu.gpus[a].pci_address});
    }
  };
  join(0, 1, 2);
  join(1, 2, 1);
  const Fabric fabric = relate(hardware);
  EXPECT_EQ(fabric.gpu_gpu[0][1], (Path{PathClass::kNvl, 2}));
  EXPECT_EQ(fabric.gpu_gpu[1][2], (Path{PathClass::kNvl, 1}));
  EXPECT_EQ(fabric.gpu_gpu[0][2], (Path{PathClass::kNvb, 0}));
  EXPECT_EQ(fabric.gpu_gpu[0][3], (Path{PathClass::kSys, 0}));
  EXPECT_THAT(fabric.nvlink_groups, IsEmpty());

  hardware.gpu.gpus[1].nvlinks[0].active = false;  // one end sees one link less: the pair has one
  EXPECT_EQ(relate(hardware).gpu_gpu[0][1], (Path{PathClass::kNvl, 1}));
}

TEST(NvLinks, SwitchesJoinOnlyTheGpusOnThem) {
  Hardware hardware = machine_of("dgx-h100-like");
  for (std::size_t i = 0; i < 8; ++i) {
    auto& links = hardware.gpu.gpus[i].nvlinks;
    for (auto& link : links) link.remote_address = i < 4 ? "0000:07:00.0" : "0000:08:00.0";
  }
  const Fabric fabric = relate(hardware);
  EXPECT_THAT(fabric.nvlink_groups, ElementsAre(ElementsAre("GPU0", "GPU1", "GPU2", "GPU3"),
                                                ElementsAre("GPU4", "GPU5", "GPU6", "GPU7")));
  EXPECT_EQ(fabric.gpu_gpu[0][3], (Path{PathClass::kNvl, 18}));
  EXPECT_EQ(fabric.gpu_gpu[0][4].kind, PathClass::kSys);
}

TEST(NvLinks, GpusOfDifferentDomainsShareNoHiddenSwitch) {
  Hardware hardware = machine_of("gb200-like");
  EXPECT_EQ(relate(hardware).nvlink_domain, "5a3c1f6e-0000-4000-8000-00000000abcd/32766");
  hardware.gpu.gpus[3].nvlink_domain = "5a3c1f6e-0000-4000-8000-00000000abcd/1";
  const Fabric fabric = relate(hardware);
  EXPECT_EQ(fabric.nvlink_domain, "");
  EXPECT_EQ(fabric.gpu_gpu[0][2], (Path{PathClass::kNvl, 18}));
  EXPECT_EQ(fabric.gpu_gpu[2][3].kind, PathClass::kC2c);
}

TEST(NvLinks, AZeroUuidIsNoDomain) {
  const unsigned char zero[16] = {};
  const unsigned char some[16] = {0x5a, 0x3c};
  EXPECT_EQ(nvlink_domain_key(zero, 7), "");
  EXPECT_EQ(nvlink_domain_key(some, 7), "5a3c0000-0000-0000-0000-000000000000/7");
}

TEST(Rails, KeepTheirNumbersWhenOneLosesItsLink) {
  const NodeTree tree("dgx-a100-like");
  const auto before = relate(machine_of(tree, "dgx-a100-like")).rails;
  ASSERT_EQ(before.size(), 8U);
  const std::string port = "sys/class/infiniband/mlx5_2/ports/1/";
  tree.write(port + "state", "1: DOWN\n");
  tree.write(port + "rate", "2.5 Gb/sec (1X SDR)\n");
  EXPECT_EQ(relate(machine_of(tree, "dgx-a100-like")).rails, before);
}

TEST(Rails, ANodeOfTooManyDevicesIsCutNotMisread) {
  Hardware hardware = machine_of("two-socket-pcie");
  for (int i = 0; i < 400; ++i) {
    hardware.rdma.insert(hardware.rdma.begin(), hardware.rdma[0]);
    hardware.rdma[0].name = "rdma" + std::to_string(i);
    hardware.gpu.gpus.push_back(hardware.gpu.gpus[0]);
  }
  const Fabric fabric = relate(hardware);
  EXPECT_EQ(fabric.nics.size(), 256U);
  EXPECT_EQ(fabric.gpus.size(), 256U);
  EXPECT_EQ(fabric.rails.size(), 256U);
}

TEST(PciProbe, AGpuBehindThousandsOfFunctionsIsFound) {
  const NodeTree tree("nothing");
  const std::filesystem::path devices = tree.folder() / "sys/devices/pci0000:00";
  const auto add = [&](const std::string& address) {
    std::filesystem::create_directories(devices / address);
    std::filesystem::create_directories(tree.folder() / "sys/bus/pci/devices");
    std::filesystem::create_symlink("../../../devices/pci0000:00/" + address,
                                    tree.folder() / "sys/bus/pci/devices" / address);
  };
  std::array<char, 16> address{};
  for (unsigned int i = 0; i < 4200; ++i) {  // virtual functions of NICs and disks
    std::snprintf(address.data(), address.size(), "0000:%02x:%02x.%u", i / 256, i / 8 % 32, i % 8);
    add(address.data());
  }
  add("0000:ff:00.0");
  tree.write("sys/devices/pci0000:00/0000:ff:00.0/vendor", "0x10de\n");
  tree.write("sys/devices/pci0000:00/0000:ff:00.0/device", "0x2330\n");
  tree.write("sys/devices/pci0000:00/0000:ff:00.0/class", "0x030200\n");
  const auto functions = probe_pci(tree.root());
  ASSERT_EQ(functions.size(), 4201U);
  EXPECT_NE(accelerator_kind(functions.back()), nullptr);
}

TEST(Rdma, ReadsPortsAndGids) {
  const NodeTree tree("two-socket-pcie");
  const auto devices = probe_rdma(tree.root());
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].pci_address, "0000:a1:00.0");
  EXPECT_EQ(devices[1].numa_node, 1);
  EXPECT_THAT(devices[1].netdevs, ElementsAre("ens1"));
  ASSERT_EQ(devices[1].ports.size(), 1U);
  const auto& port = devices[1].ports[0];
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.phys_state, "LinkUp");
  EXPECT_EQ(port.rate_mbps, 100000);
  ASSERT_EQ(port.gids.size(), 4U);
  EXPECT_EQ(port.gids[3], (Gid{3, "0000:0000:0000:0000:0000:ffff:c000:0202", "RoCE v2", "ens1"}));
}

TEST(Rdma, AnswersThatMakeNoSenseAreAbsent) {
  const NodeTree tree("two-socket-pcie");
  const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";
  for (const char* rate : {"", "fast", "1e99 Gb/sec", "-4 Gb/sec", "nan Gb/sec", "100 apples"}) {
    tree.write(port + "rate", rate);
    EXPECT_FALSE(probe_rdma(tree.root())[0].ports[0].rate_mbps) << rate;
  }
  tree.write(port + "state", std::string(1U << 20U, 'x'));
  EXPECT_EQ(probe_rdma(tree.root())[0].ports[0].state, "");
}

TEST(Accelerators, AreKnownByOneTable) {
  PciFunction function;
  const auto resource = [&](std::uint32_t vendor, std::uint32_t device,
                            std::uint32_t kind) -> std::string {
    function.vendor = vendor;
    function.device = device;
    function.class_code = kind;
    const auto* row = accelerator_kind(function);
    return row == nullptr ? "" : std::string(row->resource);
  };
  EXPECT_EQ(resource(0x10de, 0x2330, 0x030200), "nvidia.com/gpu");
  EXPECT_EQ(resource(0x10de, 0x22a3, 0x068000), "");  // an NVSwitch
  EXPECT_EQ(resource(0x1002, 0x74a1, 0x120000), "amd.com/gpu");
  EXPECT_EQ(resource(0x8086, 0x0bd5, 0x038000), "gpu.intel.com/i915");
  EXPECT_TRUE(contract::is_accelerator_resource(resource(0x8086, 0x0bd5, 0x038000)));
  EXPECT_EQ(resource(0x8086, 0x9bc4, 0x030000), "");  // the display of a desktop processor
  EXPECT_EQ(resource(0x1da3, 0x1020, 0x120000), "habana.ai/gaudi");
  EXPECT_EQ(resource(0x19e5, 0xd802, 0x120000), "huawei.com/Ascend910");
  EXPECT_EQ(resource(0x1d0f, 0x7164, 0x088000), "aws.amazon.com/neuron");
  EXPECT_EQ(resource(0x1d0f, 0xefa1, 0x020000), "");  // a NIC of the same cloud
  EXPECT_EQ(resource(0x1ae0, 0x0063, 0xff0000), "google.com/tpu");
  EXPECT_EQ(resource(0x1ae0, 0x0042, 0x020000), "");
  EXPECT_EQ(mig_resource("1g.10gb+me"), "nvidia.com/mig-1g.10gb.me");
}

TEST(Accelerators, OfOtherVendorsHaveTheirPlaceInTheMatrix) {
  const NodeTree tree("two-socket-pcie");
  const std::string gpu = "sys/bus/pci/devices/0000:19:00.0/";
  tree.write(gpu + "vendor", "0x1002\n");
  tree.write(gpu + "device", "0x74a1\n");
  tree.write(gpu + "class", "0x120000\n");
  const auto library = replay_gpus({}, "no NVML here");
  const Hardware hardware = probe_hardware(tree.root(), *library);
  ASSERT_EQ(hardware.gpu.gpus.size(), 1U);
  EXPECT_EQ(hardware.gpu.gpus[0].model, "AMD accelerator 74a1");
  EXPECT_EQ(hardware.gpu.gpus[0].resource, "amd.com/gpu");
  const Fabric fabric = relate(hardware);
  EXPECT_EQ(fabric.gpu_nic[0][0].kind, PathClass::kPix);
  // NVIDIA's, which cannot be used without the library
  EXPECT_EQ(fabric.gpus[1].label, "0000:1b:00.0");
  EXPECT_FALSE(fabric.gpus[1].usable);
}

TEST(Sysfs, HostileFilesAreAbsence) {
  const NodeTree tree("two-socket-pcie");
  namespace fs = std::filesystem;
  const fs::path devices = tree.folder() / "sys/bus/pci/devices";
  fs::create_symlink("0000:ff:01.0", devices / "0000:ff:00.0");  // a loop of two
  fs::create_symlink("0000:ff:00.0", devices / "0000:ff:01.0");
  fs::create_symlink("/dev/zero", devices / "0000:fe:00.0");
  fs::remove(devices / "0000:19:00.0/class");
  fs::create_symlink("/dev/zero", devices / "0000:19:00.0/class");  // endless
  fs::remove(devices / "0000:1b:00.0/numa_node");
  fs::create_directory(devices / "0000:1b:00.0/numa_node");
  fs::remove(tree.folder() / "sys/class/net/ens0/mtu");
  // no process ever writes
  ASSERT_EQ(mkfifo((tree.folder() / "sys/class/net/ens0/mtu").c_str(), 0600), 0);
  tree.write("sys/bus/pci/devices/0000:81:00.0/numa_node", "99999999999999999999");
  const Hardware hardware = machine_of(tree, "two-socket-pcie");
  EXPECT_EQ(hardware.pci.size(), 14U);
  EXPECT_EQ(hardware.gpu.gpus.size(), 4U);
  EXPECT_FALSE(hardware.gpu.gpus[1].numa_node);
  EXPECT_FALSE(hardware.gpu.gpus[2].numa_node);
  EXPECT_EQ(hardware.nics[0].mtu, 0);
}

TEST(Sysfs, APipeInARecordingIsLeftToItsReader) {
  const NodeTree tree("two-socket-pcie");
  const auto pipe = tree.folder() / "sys/class/net/ens0/mtu";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int ends = open(pipe.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ASSERT_GE(ends, 0);
  EXPECT_EQ(write(ends, "1500\n", 5), 5);
  EXPECT_EQ(machine_of(tree, "two-socket-pcie").nics[0].mtu, 0);
  std::array<char, 8> left{};
  EXPECT_EQ(read(ends, left.data(), left.size()), 5);
  close(ends);
}

TEST(Fallen, AGpuThatReadsAsOnesIsNamed) {
  const NodeTree tree("dgx-h100-like");
  tree.write("sys/bus/pci/devices/0000:61:00.0/config", std::string(64, '\xff'));
  const Hardware hardware = machine_of(tree, "dgx-h100-like");
  EXPECT_THAT(hardware.gpu.problem, HasSubstr("ones): 0000:61:00.0;"));
}

TEST(Legend, ExplainsWhatTheTableHoldsAndWhatItCannotKnow) {
  const std::string plain = legend_text(relate(machine_of("two-socket-pcie")));
  EXPECT_THAT(plain, HasSubstr("PIX"));
  EXPECT_THAT(plain, Not(HasSubstr("NVB")));
  EXPECT_THAT(plain, Not(HasSubstr("Note")));
  EXPECT_THAT(legend_text(relate(machine_of("cloud-vm-gpu"))), HasSubstr("--nccl-topo"));
}

TEST(NvmlJson, NamesTheFieldItsValueAndTheRemedy) {
  const auto refused = [](std::string_view text) {
    const auto read = read_nvml_json(text, "n.json");
    return read ? std::string("accepted") : read.error().message;
  };
  EXPECT_THAT(refused(R"({"version":1,"devices":[)"),
              HasSubstr("n.json: is not JSON, or was cut off; `paceline fabric"));
  EXPECT_THAT(refused("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refused(R"({"devices":[]})"), HasSubstr("field version is missing"));
  EXPECT_THAT(refused(R"({"version":2,"devices":[]})"), HasSubstr("field version is 2"));
  EXPECT_THAT(refused(R"({"version":1,"devices":[{"index":0}]})"),
              HasSubstr("devices[0].pciAddress is missing"));
  EXPECT_THAT(refused(R"({"version":1,"devices":[{"index":0,"pciAddress":"here"}]})"),
              HasSubstr(R"(devices[0].pciAddress is "here", but must be a PCI address)"));
  EXPECT_THAT(refused(R"({"version":1,"devices":[{"index":-1,"pciAddress":"0000:19:00.0"}]})"),
              HasSubstr("devices[0].index is -1"));
  EXPECT_THAT(
      refused(
          R"({"version":1,"devices":[{"index":0,"pciAddress":"0000:19:00.0","nvlinks":[{"remote":"moon"}]}]})"),
      HasSubstr(R"(devices[0].nvlinks[0].remote is "moon", but must be gpu, switch or unknown)"));
  EXPECT_THAT(refused(R"({"version":1,"devices":[{"index":0,"pciAddress":"0000:19:00.0"},
                          {"index":1,"pciAddress":"0000:19:00.0"}]})"),
              HasSubstr("a second time"));
  EXPECT_THAT(refused(std::string(100000, '[')), HasSubstr("is not JSON"));
}

}  // namespace
}  // namespace paceline::agent
