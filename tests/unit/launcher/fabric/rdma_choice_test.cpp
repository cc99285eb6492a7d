// SPDX-License-Identifier: Apache-2.0
#include "launcher/fabric/rdma_choice.hpp"

#include <gtest/gtest.h>

#include "tests/unit/launcher/fabric/machines.hpp"

namespace paceline::fabric {
namespace {

const std::string kEightCards =
    "=ib0:1,ib1:1,ib2:1,ib3:1,ib4:1,ib5:1,ib6:1,ib7:1";  // of Group{8, "ib", …}

struct Case {
  std::string machine;
  std::vector<Group> groups;
  std::string list;
  std::string reason;
};

TEST(RdmaChoice, PortsForStorageAreLeftOutWhereTheirFactsTellThemApart) {
  const std::vector<Case> cases{
      {"cards that are all alike", {{8, "ib", 400}}, "", ""},
      {"Azure ND H100 v5: accelerated networking of the virtual machine",
       {{8, "ib", 400}, {1, "mlx5_an", 100, "Ethernet"}},
       kEightCards,
       "left out: mlx5_an0:1 (Ethernet beside InfiniBand)"},
      {"DGX A100: storage over Ethernet at the same rate",
       {{8, "ib", 200}, {4, "st", 200, "Ethernet"}},
       kEightCards,
       "left out: st0:1,st1:1,st2:1,st3:1 (Ethernet beside InfiniBand)"},
      {"DGX H100: storage over InfiniBand at half the rate",
       {{8, "ib", 400}, {4, "st", 200}},
       kEightCards,
       "left out: st0:1,st1:1,st2:1,st3:1 (slower than the 400 Gbit/s of the others)"},
      {"RoCE, and a management port of the board",
       {{2, "roce", 100, "Ethernet"}, {1, "onboard", 25, "Ethernet"}},
       "=roce0:1,roce1:1",
       "left out: onboard0:1 (slower than the 100 Gbit/s of the others)"},
      {"one faster DPU must not push out eight cards", {{8, "ib", 200}, {1, "dpu", 400}}, "", ""},
      {"one faster DPU on Ethernet",
       {{8, "ib", 200}, {1, "dpu", 400, "Ethernet"}},
       kEightCards,
       "left out: dpu0:1 (Ethernet beside InfiniBand)"},
      {"two kinds that both may carry the training", {{8, "ib", 400}, {8, "half", 200}}, "", ""},
      {"InfiniBand and Ethernet of the same rate",
       {{1, "ib", 100}, {1, "eth", 100, "Ethernet"}},
       "",
       ""},
      {"rates that cannot be read", {{8, "ib", 400}, {1, "old", 0}}, "", ""},
      {"more ports than NCCL can hold", {{40, "ib", 400}, {2, "st", 100, "Ethernet"}}, "", ""},
  };
  for (const Case& one : cases) {
    const RdmaChoice choice = choose_ports(ports_of(one.groups));
    EXPECT_EQ(choice.list, one.list) << one.machine;
    EXPECT_EQ(choice.reason, one.reason) << one.machine;
  }
}

TEST(RdmaChoice, PortsThatNcclPassesOverAreNoReason) {
  auto ports = ports_of({{2, "ib", 400}, {2, "st", 100, "Ethernet"}, {1, "efa", 100, "Unknown"}});
  ports[2].active = ports[3].active = false;
  const RdmaChoice choice = choose_ports(ports);
  EXPECT_EQ(choice.list, "");
  EXPECT_EQ(choice.taken, 2);
  EXPECT_EQ(choice.summary, "RDMA over 2 ports, which NCCL chooses by itself");
}

TEST(RdmaChoice, APortWithoutALinkStaysInTheListOfItsKind) {
  auto ports = ports_of({{3, "ib", 400}, {2, "st", 100, "Ethernet"}});
  ports[1].active = false;
  ports[4].active = false;
  EXPECT_EQ(choose_ports(ports).list, "=ib0:1,ib1:1,ib2:1");
}

TEST(RdmaChoice, ALinkThatCameUpSlowlyIsKept) {
  auto ports = ports_of({{8, "ib", 400}});
  ports[5].gbps = 100;
  EXPECT_EQ(choose_ports(ports).list, "");
  EXPECT_EQ(choose_ports(ports).taken, 8);
}

TEST(RdmaChoice, DevicesThatManageNvSwitchesMoveNoData) {
  auto ports = ports_of({{2, "ib", 400}, {2, "sw", 400}});
  ports[2].manages_switches = ports[3].manages_switches = true;
  EXPECT_EQ(choose_ports(ports).list, "=ib0:1,ib1:1");
  EXPECT_EQ(choose_ports(ports).reason, "left out: sw0:1,sw1:1 (manage NVSwitches)");
}

TEST(RdmaChoice, AVirtualFunctionIsLeftOutBesideItsPhysicalOneOnly) {
  auto ports = ports_of({{2, "pf", 200}, {2, "vf", 200}});
  ports[2].physical = ports[0].address;
  ports[3].physical = ports[1].address;
  EXPECT_EQ(choose_ports(ports).list, "=pf0:1,pf1:1");
  ports.erase(ports.begin(), ports.begin() + 2);  // a pod that was given virtual functions
  EXPECT_EQ(choose_ports(ports).list, "");
  EXPECT_EQ(choose_ports(ports).taken, 2);
}

TEST(RdmaChoice, SoftwareIsLeftOutBesideHardwareOnly) {
  auto ports = ports_of({{1, "mlx5_", 100, "Ethernet"}, {1, "rxe", 100, "Ethernet"}});
  ports[1].address.clear();
  EXPECT_EQ(choose_ports(ports).list, "=mlx5_0:1");
  ports.erase(ports.begin());
  EXPECT_EQ(choose_ports(ports).list, "");
}

TEST(RdmaChoice, ARocePortWithoutAnAddressIsLeftOutIfMostHaveOne) {
  auto ports = ports_of({{4, "roce", 200, "Ethernet"}});
  ports[3].ipv4_gid.reset();
  EXPECT_EQ(choose_ports(ports).list, "=roce0:1,roce1:1,roce2:1");
  EXPECT_EQ(choose_ports(ports).reason,
            "left out: roce3:1 (without a RoCE v2 address in this container)");
  for (RdmaPort& port : ports) port.ipv4_gid.reset();
  ports[0].ipv4_gid = 3;
  EXPECT_EQ(choose_ports(ports).list, "");
}

TEST(RdmaChoice, OfOneGidIndexForAllPorts) {
  auto ports = ports_of({{2, "roce", 200, "Ethernet"}});
  EXPECT_EQ(choose_ports(ports).gid_index, 3);
  EXPECT_FALSE(choose_ports(ports).only_ipv6);
  ports[1].ipv4_gid = 5;
  EXPECT_EQ(choose_ports(ports).gid_index, -1);
  EXPECT_EQ(choose_ports(ports_of({{2, "ib", 200}})).gid_index, -1);
  for (RdmaPort& port : ports) {
    port.ipv4_gid.reset();
    port.ipv6_gid = true;
  }
  EXPECT_TRUE(choose_ports(ports).only_ipv6);
  EXPECT_EQ(choose_ports(ports).gid_index, -1);
  ports[0].ipv4_gid = 3;
  EXPECT_FALSE(choose_ports(ports).only_ipv6);
}

}  // namespace
}  // namespace paceline::fabric
