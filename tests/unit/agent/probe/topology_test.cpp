// SPDX-License-Identifier: Apache-2.0
// Topology files that clouds and vendors ship: tests/fixtures/topologies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "agent/checks/check.hpp"
#include "agent/inspect/inspect.hpp"
#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string file_of(const std::string& name) {
  return std::string(PACELINE_SOURCE_DIR) + "/tests/fixtures/topologies/" + name;
}

std::string text_of(const std::string& name) {
  std::ifstream file(file_of(name));
  return {std::istreambuf_iterator<char>(file), {}};
}

Hardware read(const std::string& text) {
  auto hardware = read_nccl_xml(text, "topo.xml");
  if (hardware) return std::move(*hardware);
  ADD_FAILURE() << hardware.error().message;
  return {};
}

std::vector<Finding> doctor(const std::string& text) {
  return run_checks(Node(read(text), Settings{}));
}

/// The file with one attribute changed.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// By name, because a file may list the NICs in another order than their CPUs.
std::map<std::string, PathClass> distances(const Fabric& fabric) {
  std::map<std::string, PathClass> found;
  for (std::size_t gpu = 0; gpu < fabric.gpus.size(); ++gpu) {
    for (std::size_t nic = 0; nic < fabric.nics.size(); ++nic)
      found[fabric.gpus[gpu].label + " " + fabric.nics[nic].label] = fabric.gpu_nic[gpu][nic].kind;
  }
  return found;
}

TEST(CloudTopology, DevicesAreTakenFromTheirPciClass) {
  const Fabric azure = relate(read(text_of("azure-ndv5.xml")));
  ASSERT_EQ(azure.gpus.size(), 8U);
  ASSERT_EQ(azure.nics.size(), 8U);
  EXPECT_EQ(azure.gpus[3].address, "0008:00:00.0");
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      EXPECT_EQ(azure.gpu_nic[i][j].kind, i == j           ? PathClass::kPix
                                          : i / 4 == j / 4 ? PathClass::kPhb
                                                           : PathClass::kSys);
    }
  }
  ASSERT_EQ(azure.rails.size(), 8U);
  EXPECT_THAT(azure.rails[5].gpus, ElementsAre("GPU5"));

  const Fabric amazon = relate(read(text_of("aws-p4d-24xl.xml")));
  ASSERT_EQ(amazon.gpus.size(), 8U);
  ASSERT_EQ(amazon.nics.size(), 4U);
  EXPECT_EQ(amazon.gpu_nic[3][1].kind, PathClass::kPix);
  EXPECT_EQ(amazon.gpu_nic[3][2].kind, PathClass::kSys);
}

TEST(CloudTopology, AnExportKeepsEveryDeviceAndInventsNoGpu) {
  for (const char* name : {"azure-ndv5.xml", "aws-p4d-24xl.xml", "amd-mi300a.xml"}) {
    const Hardware hardware = read(text_of(name));
    const std::string xml = nccl_xml_text(hardware);
    const Fabric before = relate(hardware);
    const Fabric after = relate(read(xml));
    EXPECT_EQ(after.gpu_gpu, before.gpu_gpu) << xml;
    EXPECT_EQ(distances(after), distances(before)) << xml;
    const std::string again = nccl_xml_text(read(xml));
    EXPECT_EQ(nccl_xml_text(read(again)), again);
  }
  EXPECT_THAT(nccl_xml_text(read(text_of("azure-ndv5.xml"))), Not(HasSubstr("<gpu")));
}

TEST(CloudTopology, AMachineTakesThePlacesThatItsFileGives) {
  const NodeTree tree("cloud-vm-rdma");
  tree.write("nvml.json", NodeTree::nvml_json("cloud-vm-rdma"));
  std::string xml = "<system version=\"1\">";
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    if (i % 2 == 0) xml += "<cpu numaid=\"" + std::to_string(i / 2) + "\">";
    xml += "<pci busid=\"ffff:ff:0" + n + ".0\" class=\"0x060400\"><pci busid=\"0000:00:0" +
           std::to_string(4 + i) + ".0\" class=\"0x030200\"/><pci busid=\"0000:00:1" + n +
           ".0\" class=\"0x020700\"/></pci>";
    if (i % 2 == 1) xml += "</cpu>";
  }
  const auto file = tree.folder() / "topo.xml";
  std::ofstream(file) << xml + "</system>";
  const auto view = inspect_fabric({tree.folder().string(), "", file.string()});
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_THAT(view->table, HasSubstr("NVIDIA A100-SXM4-80GB; nearest mlx5_2 (PIX)"));
  EXPECT_THAT(view->table, HasSubstr("InfiniBand 200 Gb/s ACTIVE, ib3"));
  EXPECT_THAT(view->table, Not(HasSubstr("as a hypervisor shows them")));

  const auto other = inspect_fabric({tree.folder().string(), "", file_of("azure-ndv5.xml")});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("names no PCI device of --root"));
}

TEST(CloudTopology, APipeIsReadLikeAFile) {
  const auto pipe =
      std::filesystem::temp_directory_path() / ("paceline-topology-" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << text_of("azure-ndv5.xml"); });
  const auto view = inspect_fabric({"", "", pipe.string()});
  writer.join();
  std::filesystem::remove(pipe);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_THAT(view->table, HasSubstr("000c:00:00.0"));
}

TEST(AmdTopology, XgmiJoinsTheGpus) {
  const Fabric fabric = relate(read(text_of("amd-mi300a.xml")));
  ASSERT_EQ(fabric.gpus.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      if (i != j) {
        EXPECT_EQ(fabric.gpu_gpu[i][j], (Path{PathClass::kXgmi, 1}));
      }
    }
  }
  EXPECT_THAT(matrix_text(fabric), HasSubstr("XG1"));
  EXPECT_THAT(legend_text(fabric), HasSubstr("XG#"));
}

TEST(TopologyDoctor, SaysOnlyWhatTheFileTells) {
  for (const char* name : {"azure-ndv5.xml", "aws-p4d-24xl.xml", "amd-mi300a.xml"}) {
    const auto findings = doctor(text_of(name));
    for (const char* check : {"gpu-health", "rdma-driver", "port-state"})
      EXPECT_EQ(worst(findings, check), Verdict::kUnknown) << name << " " << check;
    EXPECT_NE(worst(findings, "link-layer"), Verdict::kPass) << name;
    EXPECT_NE(worst(findings, "nvlink"), Verdict::kPass) << name;
    for (const auto& finding : findings)
      EXPECT_NE(finding.verdict, Verdict::kFail) << name << " " << finding.id;
    EXPECT_EQ(worst(findings, "pcie-link"), Verdict::kPass) << name;
  }
}

TEST(TopologyDoctor, ReadsTheOneAttributeThatNcclWroteAboutGpuDirect) {
  EXPECT_EQ(worst(doctor(text_of("amd-mi300a.xml")), "dmabuf"), Verdict::kPass);
  EXPECT_EQ(worst(doctor(text_of("azure-ndv5.xml")), "dmabuf"), Verdict::kUnknown);
  const std::string off =
      changed(text_of("amd-mi300a.xml"), "maxconn=\"128\" gdr=\"1\"", "maxconn=\"128\" gdr=\"0\"");
  for (const auto& finding : doctor(off)) {
    if (finding.id == "dmabuf" && finding.subject == "cxi0") {
      EXPECT_EQ(finding.verdict, Verdict::kFail);
      EXPECT_THAT(finding.evidence, HasSubstr("gdr=\"0\""));
      return;
    }
  }
  ADD_FAILURE() << "nothing is said of cxi0";
}

TEST(TopologyDoctor, ADeviceWithASlowerLinkThanItsPeersIsTold) {
  const std::string narrow =
      changed(text_of("azure-ndv5.xml"),
              "<pci busid=\"0002:00:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
              "link_width=\"16\"",
              "<pci busid=\"0002:00:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
              "link_width=\"8\"");
  EXPECT_EQ(worst(doctor(narrow), "pcie-link"), Verdict::kWarn);
}

TEST(Fabric, PartitionsOfAGpuHaveLabelsOfTheirOwn) {
  const Fabric fabric = relate(read(R"(<system version="2"><cpu numaid="0">
    <pci busid="0000:05:00.0" class="0x120000" vendor="0x1002"><gpu dev="0"/></pci>
    <pci busid="0000:05:00.1" class="0x120000" vendor="0x1002"><gpu dev="0"/></pci>
    <pci busid="0000:26:00.0" class="0x120000" vendor="0x1002"><gpu dev="1"/></pci>
    </cpu></system>)"));
  ASSERT_EQ(fabric.gpus.size(), 3U);
  EXPECT_EQ(fabric.gpus[0].label, "GPU0");
  EXPECT_EQ(fabric.gpus[1].label, "GPU0.1");
  EXPECT_EQ(fabric.gpus[2].label, "GPU1");
}

TEST(Fabric, WhatIsBeyondItsBoundIsCounted) {
  Hardware machine;
  for (int i = 0; i < 300; ++i) {
    Gpu gpu;
    gpu.index = i;
    machine.gpu.gpus.push_back(gpu);
  }
  const Fabric fabric = relate(machine);
  EXPECT_EQ(fabric.gpus_left_out, 300 - kMostFabricDevices);
  EXPECT_THAT(legend_text(fabric), HasSubstr("44 accelerators and 0 NICs are not shown"));
}

TEST(Fabric, AnUnknownPlaceIsFar) {
  Hardware machine;
  machine.cpu.numa_nodes = {{0, "0-3", 0}};
  machine.gpu.gpus.resize(1);
  machine.rdma.push_back({.name = "mlx5_0",
                          .firmware = "",
                          .board_id = "",
                          .pci_address = "0000:3b:00.0",
                          .numa_node = 0,
                          .netdevs = {},
                          .ports = {}});
  EXPECT_EQ(relate(machine).gpu_nic[0][0].kind, PathClass::kSys);
}

TEST(Fabric, ATerminalObeysNoName) {
  Hardware machine = read(text_of("amd-mi300a.xml"));
  machine.gpu.gpus[0].model = "MI300\x1b[2J\x07\n";
  machine.rdma[0].name = "cxi\x1b]0;owned\x07";
  machine.rdma[1].netdevs = {"hsn0\x1b[31m"};
  for (const char c : matrix_text(relate(machine)))
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c <= 0x7e)) << static_cast<int>(c);
}

TEST(Fabric, LongNamesGetShortLabelsWithALegend) {
  Hardware machine = read(text_of("amd-mi300a.xml"));
  for (int i = 0; i < 4; ++i)
    machine.rdma[static_cast<std::size_t>(i)].name = "rdmap11" + std::to_string(i) + "s0";
  const std::string table = matrix_text(relate(machine));
  EXPECT_THAT(table, HasSubstr("NIC0  NIC1"));
  EXPECT_THAT(table, HasSubstr("NIC2  rdmap112s0  0000:01:00.0"));
}

}  // namespace
}  // namespace paceline::agent
