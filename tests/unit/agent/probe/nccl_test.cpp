// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

using testing::HasSubstr;

/// Written by NCCL 2.18 on a machine with two sockets: socket 0 has a switch with a GPU and a NIC,
/// and a GPU beside it; socket 1 has a GPU.
constexpr const char* kDump = R"(<system version="1">
  <cpu numaid="0" affinity="00000000,0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:17:00.0" class="0x060400" vendor="0x1000" device="0xc010" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1a:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:3a:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:1b:00.0" class="0x020700" vendor="0x15b3" device="0x101b">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.000000" guid="0x1a2b" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
    <pci busid="0000:3a:00.0" class="0x030200" vendor="0x10de" device="0x20b0">
      <gpu dev="1" sm="80" rank="1" gdr="1">
        <nvlink target="0000:1a:00.0" count="4" tclass="0x030200"/>
      </gpu>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="00000000,ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:86:00.0" class="0x030200" vendor="0x10de" device="0x20b0">
      <gpu dev="2" sm="80" rank="2" gdr="1"/>
    </pci>
  </cpu>
</system>
)";

TEST(NcclXml, ReadsWhatNcclWrites) {
  const auto hardware = read_nccl_xml(kDump, "topo.xml");
  ASSERT_TRUE(hardware) << hardware.error().message;
  EXPECT_EQ(hardware->cpu.numa_nodes[1].cpus, "16-31");
  EXPECT_EQ(hardware->rdma[0].ports[0].rate_mbps, 200000);
  const Fabric fabric = relate(*hardware);
  EXPECT_EQ(fabric.gpu_gpu[0][1], (Path{PathClass::kNvl, 4}));
  EXPECT_EQ(fabric.gpu_gpu[0][2].kind, PathClass::kSys);
  EXPECT_EQ(fabric.gpu_nic[0][0].kind, PathClass::kPix);
  EXPECT_EQ(fabric.gpu_nic[1][0].kind, PathClass::kPhb);
  EXPECT_EQ(fabric.gpu_nic[2][0].kind, PathClass::kSys);
  EXPECT_FALSE(fabric.virtual_topology);
}

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, AnExportGivesTheSameMatrixAgain) {
  const NodeTree tree(GetParam());
  const auto library = read_nvml_json(NodeTree::nvml_json(GetParam()), GetParam());
  ASSERT_TRUE(library);
  const Hardware hardware = probe_hardware(tree.root(), **library);
  const std::string xml = nccl_xml_text(hardware);
  const auto again = read_nccl_xml(xml, "export.xml");
  ASSERT_TRUE(again) << again.error().message << "\n" << xml;
  const Fabric before = relate(hardware);
  const Fabric after = relate(*again);
  EXPECT_EQ(after.gpu_gpu, before.gpu_gpu) << xml;
  EXPECT_EQ(after.gpu_nic, before.gpu_nic) << xml;
  EXPECT_EQ(after.nvlink_groups, before.nvlink_groups);
  EXPECT_EQ(after.virtual_topology, before.virtual_topology);
  ASSERT_EQ(after.nics.size(), before.nics.size());
  for (std::size_t i = 0; i < after.nics.size(); ++i)
    EXPECT_EQ(after.nics[i].label, before.nics[i].label);
  EXPECT_EQ(nccl_xml_text(*again), xml);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, RoundTrip,
                         testing::Values("dgx-h100-like", "dgx-a100-like", "gb200-like",
                                         "two-socket-pcie", "cloud-vm-gpu", "h200-vm",
                                         "cloud-vm-rdma", "xe9680-spare-ports", "aws-p5en-half",
                                         "nothing"));

TEST(NcclXml, ExportLeavesOutWhatNcclLeavesOut) {
  const NodeTree tree("dgx-a100-like");
  const auto library = read_nvml_json(NodeTree::nvml_json("dgx-a100-like"), "nvml");
  const std::string xml = nccl_xml_text(probe_hardware(tree.root(), **library));
  EXPECT_THAT(xml, testing::Not(HasSubstr("busid=\"0000:00:01.0\"")));  // the root port
  // a lower port of the upper switch
  EXPECT_THAT(xml, testing::Not(HasSubstr("busid=\"0000:02:00.0\"")));
  const auto upper = xml.find("busid=\"0000:01:00.0\"");
  const auto lower = xml.find("busid=\"0000:03:00.0\"");
  const auto gpu = xml.find("busid=\"0000:05:00.0\"");
  EXPECT_LT(upper, lower);
  EXPECT_LT(lower, gpu);
  EXPECT_NE(gpu, std::string::npos);
  EXPECT_THAT(xml, HasSubstr(R"(<nvlink target="0000:e4:00.0" count="2" tclass="0x068000"/>)"));
}

TEST(NcclXml, NamesTheElementItsAttributeAndTheRemedy) {
  const auto refused = [](const std::string& text) {
    const auto read = read_nccl_xml(text, "t.xml");
    return read ? std::string("accepted") : read.error().message;
  };
  const auto pci = [](const std::string& inner) {
    return "<system version=\"1\"><cpu numaid=\"0\"><pci " + inner + "</pci></cpu></system>";
  };
  EXPECT_THAT(refused(""), HasSubstr("t.xml: is not XML, or was cut off"));
  EXPECT_THAT(refused(std::string(kDump).substr(0, 700)), HasSubstr("NCCL_TOPO_DUMP_FILE"));
  EXPECT_THAT(refused("<graphs/>"), HasSubstr("the first element must be <system>"));
  EXPECT_THAT(refused("<system><cpu/></system>"),
              HasSubstr("<cpu> at byte 9: lacks the attribute numaid"));
  EXPECT_THAT(refused("<system/>"), HasSubstr("holds no <cpu>"));
  EXPECT_THAT(refused(pci("busid=\"x\">")), HasSubstr("<pci busid=\"x\"> at byte"));
  EXPECT_THAT(refused(pci("busid=\"0000:1a:00.0\" class=\"gpu\">")),
              HasSubstr("class=\"gpu\" must be a number"));
  EXPECT_THAT(refused(pci("busid=\"0000:1a:00.0\"><gpu dev=\"-1\"/>")),
              HasSubstr("dev=\"-1\" must be a whole number"));
  EXPECT_THAT(
      refused(pci("busid=\"0000:1a:00.0\"><gpu><nvlink target=\"a\" count=\"9999999\"/></gpu>")),
      HasSubstr("count=\"9999999\""));
  EXPECT_THAT(refused(pci("busid=\"0000:1a:00.0\"><pci busid=\"0000:1a:00.0\"/>")),
              HasSubstr("a second time"));
  std::string deep;
  for (int i = 0; i < 100; ++i)
    deep += "<pci busid=\"0000:" + std::to_string(10 + i % 90) + ":0" + std::to_string(i / 90) +
            ".0\">";
  for (int i = 0; i < 100; ++i) deep += "</pci>";
  EXPECT_THAT(refused("<system><cpu numaid=\"0\">" + deep + "</cpu></system>"),
              HasSubstr("deeper than 32"));
}

}  // namespace
}  // namespace paceline::agent
