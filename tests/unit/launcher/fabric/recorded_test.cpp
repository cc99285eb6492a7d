// SPDX-License-Identifier: Apache-2.0
// What is set in a container on each recorded machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "launcher/fabric/nccl.hpp"
#include "launcher/fabric/rdma_choice.hpp"
#include "tests/unit/launcher/fabric/container.hpp"

namespace paceline::fabric {
namespace {

const RdmaPort& port_in(const Machine& machine, const std::string& device) {
  const auto found = std::ranges::find(machine.ports, device, &RdmaPort::device);
  if (found == machine.ports.end()) throw std::runtime_error("no port of " + device);
  return *found;
}

TEST(RecordedMachine, WhatIsSet) {
  struct Case {
    std::string machine;
    int gpus;
    std::string interface;
    std::string settings;
    std::string transport;
  };
  const std::vector<Case> cases{
      {"xe9680-spare-ports", 8, "",
       "NCCL_IB_HCA==mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,"
       "mlx5_9:1,mlx5_10:1,mlx5_11:1\n",
       "RDMA over 8 ports"},
      {"dgx-h100-like", 8, "eth0", "", "RDMA over 7 ports, which NCCL chooses by itself"},
      {"dgx-a100-like", 8, "", "", "RDMA over 8 ports, which NCCL chooses by itself"},
      {"gb200-like", 4, "eth0", "", "RDMA over 4 ports, which NCCL chooses by itself"},
      {"two-socket-pcie", 4, "", "", "RDMA over 2 ports, which NCCL chooses by itself"},
      {"cloud-vm-rdma", 4, "eth0", "", "RDMA over 4 ports, which NCCL chooses by itself"},
      {"aws-p5en-half", 4, "enp96s0", "", "EFA: the plugin aws-ofi-nccl decides"},
      {"cloud-vm-gpu", 1, "ens12", "",
       "TCP over ens12: no RDMA device can be opened in this container"},
      {"cloud-vm", 0, "eth0", "", ""},
      {"nothing", 0, "", "", ""},
  };
  for (const Case& one : cases) {
    const Container container(one.machine, one.gpus);
    const Machine machine = read_machine(container.root(), one.interface);
    EXPECT_EQ(machine.gpus, one.gpus) << one.machine;
    const Advice advice = advise(machine, {.hosts = 2, .cpus = 12});
    std::string settings;
    for (const Setting& setting : advice.settings) {
      if (!setting.name.ends_with("_IFNAME")) settings += setting.name + "=" + setting.value + "\n";
    }
    EXPECT_EQ(settings, one.settings) << one.machine;
    EXPECT_EQ(advice.transport, one.transport) << one.machine;
  }
}

TEST(RecordedMachine, OnlyDevicesCountThatTheContainerWasGiven) {
  const Container container("xe9680-spare-ports", 8);
  for (const char* storage : {"mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"}) container.take(storage);
  const Machine machine = read_machine(container.root(), "");
  EXPECT_EQ(machine.ports.size(), 8U);
  EXPECT_TRUE(advise(machine, {.hosts = 2}).settings.empty());
}

TEST(RecordedMachine, AllSocketsWhereNoRdmaDeviceWasGiven) {
  const Container container("two-socket-pcie", 4);
  container.take("mlx5_0");
  container.take("mlx5_1");
  const Advice advice = advise(read_machine(container.root(), "ens0"), {.hosts = 2, .cpus = 8});
  EXPECT_EQ(advice.transport, "TCP over ens0: no RDMA device can be opened in this container");
  ASSERT_EQ(advice.settings.size(), 4U);
  EXPECT_EQ(advice.settings[2].name + "=" + advice.settings[2].value, "NCCL_SOCKET_NTHREADS=4");
}

TEST(RecordedMachine, WhatIsReadOfAPort) {
  const Container container("dgx-a100-like", 8);
  const std::string device = "sys/class/infiniband/mlx5_3";
  const Machine machine = read_machine(container.root(), "eth0");
  ASSERT_EQ(machine.ports.size(), 8U);
  const RdmaPort& port = port_in(machine, "mlx5_3");
  EXPECT_EQ(port.address, "0000:4a:00.0");
  EXPECT_EQ(port.layer, "Ethernet");
  EXPECT_EQ(port.gbps, 200);
  EXPECT_EQ(port.ipv4_gid, 3);
  EXPECT_FALSE(port.ipv6_gid || port.efa || port.manages_switches);
  EXPECT_TRUE(port.active && port.physical.empty());
  EXPECT_EQ(port.kind, port_in(machine, "mlx5_0").kind);
  EXPECT_EQ(machine.interface.vendor, "0x15b3");
  EXPECT_EQ(machine.interface.mbps, 200'000);

  // An address that the network gives to another container has no type here.
  container.tree().remove(device + "/ports/1/gid_attrs/types/3");
  container.tree().write(device + "/ports/1/gids/1", "fd00:0000:0000:0000:0000:0000:0000:0007\n");
  const RdmaPort changed = port_in(read_machine(container.root(), ""), "mlx5_3");
  EXPECT_EQ(changed.ipv4_gid, std::nullopt);
  EXPECT_TRUE(changed.ipv6_gid);
}

TEST(RecordedMachine, VirtualFunctionsAndManagersOfSwitchesAreKnown) {
  const Container container("dgx-h100-like", 8);
  const std::string third = "sys/class/infiniband/mlx5_3/device/";
  container.tree().write(third + "vpd", "..VA.ConnectX-7.SW_MNG..");
  container.tree().write(third + "class", "0x020700\n");
  const std::string second = "sys/class/infiniband/mlx5_2/device/";
  std::filesystem::create_symlink(
      std::filesystem::canonical(container.root() / "sys/class/infiniband/mlx5_0/device"),
      container.root() / second / "physfn");
  const Machine machine = read_machine(container.root(), "");
  EXPECT_TRUE(port_in(machine, "mlx5_3").manages_switches);
  EXPECT_EQ(port_in(machine, "mlx5_2").physical, port_in(machine, "mlx5_0").address);
  EXPECT_EQ(choose_ports(machine.ports).list,
            "=mlx5_0:1,mlx5_1:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1");
}

}  // namespace
}  // namespace paceline::fabric
