// SPDX-License-Identifier: Apache-2.0
// Every check on machines where it passes, where it finds its fault, and where it cannot decide:
// one row for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "testing/node_tree.hpp"
#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

using testing::HasSubstr;

using Change = std::function<void(const NodeTree&)>;

Change put(std::string file, std::string text) {
  return [=](const NodeTree& tree) { tree.write(file, text); };
}
Change drop(std::string file) {
  return [=](const NodeTree& tree) { tree.remove(file); };
}
std::string pci_file(const std::string& address, const std::string& name) {
  return "sys/bus/pci/devices/" + address + "/" + name;
}
/// As the kernel shows it to a process without privilege.
Change short_config(const std::string& address) {
  return [=](const NodeTree& tree) {
    const auto config = read_bytes(tree.folder() / pci_file(address, "config"), 64);
    tree.write(pci_file(address, "config"), config.value_or(""));
  };
}
/// An RDMA device for the cloud's machine, which has none.
Change give_nic(bool ats) {
  return [=](const NodeTree& tree) {
    const std::string folder = "sys/devices/pci0000:00/0000:00:0c.0/";
    tree.write(folder + "infiniband/roce0/ports/1/state", "4: ACTIVE\n");
    tree.write(folder + "infiniband/roce0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
    tree.write(folder + "infiniband/roce0/ports/1/link_layer", "Ethernet\n");
    std::filesystem::create_directories(tree.folder() / "sys/class/infiniband");
    std::filesystem::create_symlink("../../devices/pci0000:00/0000:00:0c.0/infiniband/roce0",
                                    tree.folder() / "sys/class/infiniband/roce0");
    std::filesystem::create_symlink("../../../0000:00:0c.0",
                                    tree.folder() / (folder + "infiniband/roce0/device"));
    std::string config(4096, '\0');
    config[0] = '\xe0';
    config[0x100] = 0x0f;
    config[0x102] = 1;
    config[0x107] = static_cast<char>(ats ? 0x80 : 0);
    tree.write(folder + "config", config);
  };
}
EarlierCounters an_hour_ago(const std::string& name, std::uint64_t value) {
  return {std::chrono::hours(1), {{name, value}}};
}

const std::string kPort3 = "sys/class/infiniband/mlx5_3/ports/1/";
const std::string kNet3 = "sys/class/net/eth3/";
const std::string kNvidiaVersion = "proc/driver/nvidia/version";

std::vector<CheckCase> registration_cases() {
  return {
      {"dmabuf", Verdict::kUnknown, "no registration was tried", kH100},
      {"dmabuf", Verdict::kFail, "kernel 4.18.0-553.el8 is older than 5.12, and no peer", kH100,
       put("proc/sys/kernel/osrelease", "4.18.0-553.el8\n")},
      {"dmabuf", Verdict::kFail, "is not the open one: NVRM version: NVIDIA UNIX x86_64 Kernel",
       kH100,
       put(kNvidiaVersion,
           "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\nGCC version: 12\n")},
      {"dmabuf", Verdict::kWarn, "nvidia_peermem has to take its place", kA100},
      {"dmabuf", Verdict::kUnknown, "version cannot be read", kH100, drop(kNvidiaVersion)},
      {"dmabuf", Verdict::kUnknown, "release cannot be read", kH100,
       put("proc/sys/kernel/osrelease", "new\n")},
      {"dmabuf", Verdict::kSkip, "no RDMA device that serves GPUs", kVirtual},
      {"peermem-loaded", Verdict::kPass, "nvidia_peermem is loaded", kA100},
      {"peermem-loaded", Verdict::kPass, "nv_mem is loaded", kBroken,
       put("sys/kernel/mm/memory_peers/nv_mem/version", "1.1-0\n")},
      {"peermem-loaded", Verdict::kFail, "dma-buf cannot take its place", kBroken},
      {"peermem-loaded", Verdict::kFail, "NCCL does not see it", kA100,
       drop("sys/module/nvidia_peermem/version")},
      {"peermem-loaded", Verdict::kSkip, "not needed where dma-buf works", kH100},
      {"peermem-loaded", Verdict::kUnknown, "is not known", kH100, drop(kNvidiaVersion)},
      {"peermem-effective", Verdict::kUnknown, "bound to ib_core", kA100},
      {"peermem-effective", Verdict::kFail, "does not list it", kA100,
       put("proc/modules", "ib_core 4096 1 mlx5_ib, Live 0x0\nnvidia_peermem 4096 0 - Live 0x0\n")},
      {"peermem-effective", Verdict::kUnknown, "/proc/modules cannot be read", kA100,
       drop("proc/modules")},
      {"peermem-params", Verdict::kPass, "peerdirect_support is 0", kA100},
      {"peermem-params", Verdict::kFail, "is 1, which is for MLNX_OFED 4.9", kA100,
       put("sys/module/nvidia_peermem/parameters/peerdirect_support", "1\n")},
      {"peermem-params", Verdict::kPass, "as MLNX_OFED 4.9 wants it", kA100,
       [](const NodeTree& tree) {
         tree.write("sys/module/nvidia_peermem/parameters/peerdirect_support", "1\n");
         tree.write("sys/module/mlx5_core/version", "4.9-7.1.0\n");
       }},
      {"peermem-params", Verdict::kUnknown, "cannot be read", kA100,
       drop("sys/module/nvidia_peermem/parameters")},
  };
}

std::vector<CheckCase> bus_cases() {
  return {
      {"acs", Verdict::kPass, "control 0x0000", kH100},
      {"acs", Verdict::kFail, "root complex (control 0x001d)", kBroken},
      {"acs", Verdict::kUnknown, "only 64 bytes", kH100, short_config("0000:16:00.0")},
      {"acs", Verdict::kUnknown, "cannot be read", kH100, drop(pci_file("0000:16:00.0", "config"))},
      {"acs", Verdict::kPass, "translation services are on", kVirtual, give_nic(true)},
      {"acs", Verdict::kWarn, "(ATS) are off", kVirtual, give_nic(false)},
      {"acs", Verdict::kWarn, "a virtual machine without address translation services",
       kVirtualRdma,
       [](const NodeTree& tree) {  // a machine type without PCI Express
         std::filesystem::resize_file(tree.folder() / pci_file("0000:00:10.0", "config"), 256);
       }},
      {"pcie-mps", Verdict::kSkip, "does not show what lies between", kVirtualRdma},
      {"acs", Verdict::kSkip, "no GPU and NIC have a bridge between them", kTray},
      {"iommu", Verdict::kPass, "of type identity", kH100},
      {"iommu", Verdict::kFail, "of type DMA-FQ", kBroken},
      {"iommu", Verdict::kPass, "behind no IOMMU", kH100,
       drop(pci_file("0000:18:00.0", "iommu_group"))},
      {"iommu", Verdict::kPass, "asks for pass-through", kH100,
       drop("sys/kernel/iommu_groups/5/type")},
      {"iommu", Verdict::kUnknown, "cannot be read", kBroken,
       drop("sys/bus/pci/devices/0000:18:00.0/iommu_group/type")},
      {"pcie-mrrs", Verdict::kPass, "at most 4096 bytes", kH100},
      {"pcie-mrrs", Verdict::kWarn, "at most 512 bytes", kBroken},
      {"pcie-mrrs", Verdict::kUnknown, "CAP_SYS_ADMIN", kH100, short_config("0000:18:00.0")},
      {"pcie-mps", Verdict::kPass, "256 bytes all the way", kH100},
      {"pcie-mps", Verdict::kFail, "differ on the way: 0000:52:00.0 256, 0000:4f:00.0 512",
       kBroken},
      {"pcie-mps", Verdict::kUnknown, "only 64 bytes", kH100, short_config("0000:17:00.0")},
      {"pcie-relaxed-ordering", Verdict::kPass, "on", kH100},
      {"pcie-relaxed-ordering", Verdict::kWarn, "relaxed ordering is off", kBroken},
      {"pcie-relaxed-ordering", Verdict::kUnknown, "only 64 bytes", kH100,
       short_config("0000:1b:00.0")},
      {"pcie-link", Verdict::kPass, "32 GT/s x16 of 32 GT/s x16", kH100},
      {"pcie-link", Verdict::kPass, "NVLink-C2C", kTray},
      {"pcie-link", Verdict::kPass, "32 GT/s x16 of 32 GT/s x16", kH100,
       drop("sys/class/infiniband")},
      {"pcie-link", Verdict::kFail, "32 GT/s x8 of 32 GT/s x16", kBroken},
      {"pcie-link", Verdict::kFail, "16 GT/s x16 of 32 GT/s x16", kH100,
       put(pci_file("0000:18:00.0", "current_link_speed"), "16.0 GT/s PCIe\n")},
      {"pcie-link", Verdict::kPass, "16 GT/s x16 of 16 GT/s x16", kH100,
       [](const NodeTree& tree) {  // the slot can no more
         tree.write(pci_file("0000:18:00.0", "current_link_speed"), "16.0 GT/s PCIe\n");
         tree.write(pci_file("0000:17:00.0", "max_link_speed"), "16.0 GT/s PCIe\n");
         tree.write(pci_file("0000:17:00.0", "max_link_width"), "16\n");
       }},
      {"pcie-link", Verdict::kUnknown, "an idle GPU lowers its link", kH100,
       put(pci_file("0000:1b:00.0", "current_link_speed"), "2.5 GT/s PCIe\n")},
      {"pcie-link", Verdict::kUnknown, "cannot be read", kH100,
       put(pci_file("0000:1b:00.0", "current_link_speed"), "Unknown\n")},
  };
}

std::vector<CheckCase> health_cases() {
  const auto off_the_bus = [](const NodeTree& tree) {
    tree.write(pci_file("0000:52:00.0", "config"), std::string(64, '\xff'));
  };
  const auto lost = [](Hardware& machine) {
    machine.gpu.unreadable.push_back(machine.gpu.gpus.back());
    machine.gpu.gpus.pop_back();
  };
  const auto no_library = [lost](Hardware& machine) {
    lost(machine);
    machine.gpu.library_problem = "libnvidia-ml.so.1: no such file";
  };
  return {
      {"gpu-health", Verdict::kPass, "8 of 8 answer", kH100},
      {"gpu-health", Verdict::kFail, "fell off the PCI bus", kH100, off_the_bus},
      {"gpu-health", Verdict::kFail, "NVML does not show it", kH100, [](const NodeTree&) {}, lost},
      {"gpu-health", Verdict::kUnknown,
       "NVML does not answer (libnvidia-ml.so.1: no such file): install the driver", kH100,
       [](const NodeTree&) {}, no_library},
      {"gpu-health", Verdict::kSkip, "no accelerator", "nothing"},
  };
}

std::vector<CheckCase> placement_cases() {
  const auto no_numa = [](const NodeTree& tree) {
    tree.write(pci_file("0000:18:00.0", "numa_node"), "-1\n");
  };
  return {
      {"gpu-nic-distance", Verdict::kPass, "PIX to mlx5_0", kH100},
      {"gpu-nic-distance", Verdict::kPass, "P2C to mlx5_0", kTray},
      {"gpu-nic-distance", Verdict::kFail, "PHB to mlx5_0 at best", kSockets},
      {"gpu-nic-distance", Verdict::kSkip, "distances there mean nothing", kVirtual,
       give_nic(true)},
      {"gpu-nic-distance", Verdict::kUnknown, "its place on the bus is not known", kH100,
       [](const NodeTree&) {},
       [](Hardware& machine) { machine.gpu.gpus[0].pci_address = "0000:ee:00.0"; }},
      {"numa", Verdict::kPass, "NUMA node 0 and 0", kH100},
      {"numa", Verdict::kPass, "one NUMA node", kH100, drop("sys/devices/system/node/node1")},
      {"numa", Verdict::kWarn, "no NUMA node (-1)", kH100, no_numa},
      {"numa", Verdict::kWarn, "NUMA node 0 and 1", kH100,
       put(pci_file("0000:18:00.0", "numa_node"), "1\n")},
      {"bar1", Verdict::kPass, "BAR 1 of 131072 MiB", kH100},
      {"bar1", Verdict::kFail, "BAR 1 of 256 MiB, memory of 81559 MiB", kBroken},
      {"bar1", Verdict::kUnknown, "neither NVML nor sysfs", kH100, [](const NodeTree&) {},
       [](Hardware& machine) { machine.gpu.gpus[0].bar1_mib.reset(); }},
      {"bar1", Verdict::kPass, "BAR 1 of 131072 MiB", kH100,
       put(pci_file("0000:1b:00.0", "resource"),
           "0x00 0xff 0x40200\n0x380000000000 0x381fffffffff 0x14220c\n"),
       [](Hardware& machine) {
         for (auto& gpu : machine.gpu.gpus) gpu.bar1_mib.reset();
       }},
      {"bar1", Verdict::kSkip, "no GPU of a kind", kSockets, [](const NodeTree&) {},
       [](Hardware& machine) {
         for (auto& gpu : machine.gpu.gpus) gpu.model = "NVIDIA GeForce RTX 4090";
       }},
  };
}

std::vector<CheckCase> port_cases() {
  const auto no_gpu = [](Hardware& machine) { machine.gpu = {}; };
  const auto second_port = [](const NodeTree& tree) {
    const std::string port = "sys/class/infiniband/mlx5_3/ports/2/";
    tree.write(port + "state", "4: ACTIVE\n");
    tree.write(port + "rate", "100 Gb/sec (4X EDR)\n");
    tree.write(port + "link_layer", "Ethernet\n");
    tree.write(port + "hw_counters/link_downed", "7\n");
  };
  return {
      {"port-state", Verdict::kPass, "ACTIVE, LinkUp", kH100},
      {"port-state", Verdict::kFail, "DOWN, Disabled", kH100},
      {"port-state", Verdict::kUnknown, "cannot be read", kH100, drop(kPort3 + "state")},
      {"port-rate", Verdict::kPass, "400 Gb/s", kH100},
      {"port-rate", Verdict::kFail, "200 Gb/s, its peers on this node 400 Gb/s", kBroken},
      {"port-rate", Verdict::kUnknown, "its rate cannot be read", kH100, drop(kPort3 + "rate")},
      {"link-layer", Verdict::kPass, "InfiniBand", kH100},
      {"link-layer", Verdict::kFail, "Ethernet: mlx5_3/1; InfiniBand: mlx5_0/1", kH100,
       put(kPort3 + "link_layer", "Ethernet\n")},
      {"link-layer", Verdict::kUnknown, "no port says", kSockets,
       [](const NodeTree& tree) {
         for (const char* name : {"mlx5_0", "mlx5_1"})
           tree.remove("sys/class/infiniband/" + std::string(name) + "/ports/1/link_layer");
       }},
      {"nic-firmware", Verdict::kPass, "MT_0000000838 28.39.1002", kH100},
      {"nic-firmware", Verdict::kWarn, "28.37.1014: mlx5_2;", kBroken},
      {"nic-firmware", Verdict::kUnknown, "cannot be read", kH100,
       drop("sys/class/infiniband/mlx5_3/fw_ver")},
      {"port-errors", Verdict::kUnknown, "one reading says nothing", kH100},
      {"port-errors", Verdict::kUnknown, "counters cannot be read", kSockets,
       [](const NodeTree& tree) {
         tree.remove("sys/class/infiniband/mlx5_0/ports/1/counters");
         tree.remove("sys/class/infiniband/mlx5_0/ports/1/hw_counters");
       }},
      {"port-errors", Verdict::kPass, "no error within 60 min", kH100,
       put(kPort3 + "counters/link_downed", "4\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 4)},
      {"port-errors", Verdict::kWarn, "link_downed +3 within 60 min", kH100,
       put(kPort3 + "counters/link_downed", "7\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 4)},
      {"port-errors", Verdict::kWarn, "link_downed +2 within", kH100,  // counted from 0 again
       put(kPort3 + "counters/link_downed", "2\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 link_downed", 4)},
      {"port-errors", Verdict::kPass, "no error", kH100,
       put(kPort3 + "counters/symbol_error", "119\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 symbol_error", 0)},
      {"port-errors", Verdict::kWarn, "symbol_error +120", kH100,
       put(kPort3 + "counters/symbol_error", "120\n"), [](Hardware&) {},
       an_hour_ago("mlx5_3/1 symbol_error", 0)},
      {"gid", Verdict::kPass, "GID 3 is RoCE v2 with an IPv4 address", kA100},
      {"gid", Verdict::kFail, "none of its 3 GIDs", kA100,
       put(kPort3 + "gids/3", "0000:0000:0000:0000:0000:0000:0000:0000")},
      {"gid", Verdict::kUnknown, "GIDs cannot be read", kA100, drop(kPort3 + "gids")},
      {"gid", Verdict::kSkip, "InfiniBand's", kH100},
      {"port-errors", Verdict::kWarn, "link_downed +7 within", kH100, second_port, [](Hardware&) {},
       an_hour_ago("mlx5_3/2 link_downed", 0)},
      {"link-layer", Verdict::kFail, "Ethernet: mlx5_3/2; InfiniBand: mlx5_0/1", kH100,
       second_port},
      {"port-rate", Verdict::kFail, "100 Gb/s, its peers on this node 400 Gb/s", kH100,
       second_port},
      // Without accelerators the check reads the ports with a link.
      {"port-state", Verdict::kPass, "ACTIVE", kSockets, [](const NodeTree&) {}, no_gpu},
      {"gid", Verdict::kPass, "is RoCE v2 with an IPv4 address", kSockets, [](const NodeTree&) {},
       no_gpu},
      {"port-state", Verdict::kSkip, "no RDMA device with a link", "nothing"},
      {"mtu", Verdict::kPass, "MTU 4200", kA100},
      {"mtu", Verdict::kWarn, "MTU 1500: RoCE's 4096", kA100, put(kNet3 + "mtu", "1500\n")},
      {"mtu", Verdict::kFail, "differ: 4200 to 9000", kA100, put(kNet3 + "mtu", "9000\n")},
      {"mtu", Verdict::kUnknown, "MTU cannot be read", kA100, drop(kNet3 + "mtu")},
      {"pfc-ecn", Verdict::kPass, "PFC and ECN on priority 3", kA100},
      {"pfc-ecn", Verdict::kWarn, "trusts pcp, not dscp", kA100, put(kNet3 + "qos/trust", "pcp\n")},
      {"pfc-ecn", Verdict::kWarn, "no priority has flow control", kA100,
       put(kNet3 + "qos/pfc", "0 0 0 0 0 0 0 0\n")},
      {"pfc-ecn", Verdict::kWarn, "ECN is off for priority 3", kA100,
       put(kNet3 + "ecn/roce_rp/enable/3", "0\n")},
      {"pfc-ecn", Verdict::kUnknown, "mlnx_qos -i eth3", kA100, drop(kNet3 + "qos")},
      {"pfc-ecn", Verdict::kUnknown, "mlnx_qos -i eth3", kA100,
       put(kNet3 + "qos/pfc", "0,0,many\n")},
  };
}

std::vector<CheckCase> nvlink_cases() {
  const auto errors = [](Hardware& machine) { machine.gpu.gpus[2].nvlinks[7].errors = 12; };
  const auto ill = [](Hardware& machine) {
    machine.gpu.gpus[2].nvlink_fabric = NvLinkFabric{3, 0, 0x99};
  };
  const auto refused = [](Hardware& machine) {
    machine.gpu.gpus[2].nvlink_fabric = NvLinkFabric{3, 15, 0};
  };
  const auto no_manager = [](const NodeTree& tree) { tree.remove("proc/2101"); };
  const auto unseen = [](const NodeTree& tree) {
    tree.remove("proc/2101");
    tree.write("proc/1/comm", "paceline-agent\n");
  };
  const auto asleep = [](Hardware& machine) {
    for (auto& gpu : machine.gpu.gpus) {
      for (auto& link : gpu.nvlinks) link = {link.link, false, NvLinkRemote::kUnknown, {}};
    }
  };
  // Cards with four links each, of which these pairs have a bridge.
  const auto bridges = [](const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
    return [pairs](Hardware& machine) {
      auto& gpus = machine.gpu.gpus;
      for (auto& gpu : gpus) {
        for (int link = 0; link < 4; ++link)
          gpu.nvlinks.push_back({link, false, NvLinkRemote::kUnknown, {}});
      }
      const auto connect = [&](std::size_t from, std::size_t to) {
        const auto free = std::find_if(gpus[from].nvlinks.begin(), gpus[from].nvlinks.end(),
                                       [](const NvLink& link) { return !link.active; });
        *free = {free->link, true, NvLinkRemote::kGpu, gpus[to].pci_address};
      };
      for (const auto& [a, b] : pairs) {
        connect(a, b);
        connect(b, a);
      }
    };
  };
  const auto no_gpus = [](Hardware& machine) {
    std::swap(machine.gpu.gpus, machine.gpu.unreadable);
  };
  return {
      {"nvlink", Verdict::kPass, "18 of 18 links are active", kH100},
      {"nvlink", Verdict::kFail, "17 of 18 links are active", kBroken},
      {"nvlink", Verdict::kWarn, "rose by 2 within 60 min", kH100, [](const NodeTree&) {}, errors,
       an_hour_ago("0000:52:00.0 nvlink_errors", 10)},
      {"nvlink", Verdict::kPass, "18 of 18", kH100, [](const NodeTree&) {}, errors,
       an_hour_ago("0000:52:00.0 nvlink_errors", 12)},
      {"nvlink", Verdict::kUnknown, "NVML shows no GPU", kH100, [](const NodeTree&) {}, no_gpus},
      {"nvlink", Verdict::kSkip, "no GPU has NVLinks", kSockets},
      {"nvlink", Verdict::kSkip, "cards without a bridge", kSockets, [](const NodeTree&) {},
       bridges({})},
      {"nvlink", Verdict::kPass, "2 of 2 links are active", kSockets, [](const NodeTree&) {},
       bridges({{0, 1}, {0, 1}})},
      {"nvlink", Verdict::kFail, "1 of 2 links are active", kSockets, [](const NodeTree&) {},
       bridges({{0, 1}, {0, 1}, {2, 3}})},
      {"nvlink", Verdict::kFail,
       "2 of 2 links are active, but 2 links lead to GPU1, which has 1 back", kSockets,
       [](const NodeTree&) {},
       [bridges](Hardware& machine) {
         bridges({{0, 1}, {0, 1}})(machine);
         machine.gpu.gpus[1].nvlinks[1].remote_address = machine.gpu.gpus[2].pci_address;
       }},
      {"nvlink", Verdict::kFail, "link 1 leads to 0000:77:00.0, which is not on this node",
       kSockets, [](const NodeTree&) {},
       [bridges](Hardware& machine) {
         bridges({{0, 1}, {0, 1}})(machine);
         machine.gpu.gpus[0].nvlinks[1].remote_address = "0000:77:00.0";
         machine.gpu.gpus[1].nvlinks[1].remote_address.clear();
       }},
      // A hypervisor that passes one GPU of a board keeps its links.
      {"nvlink", Verdict::kSkip, "no NVLink leads anywhere", kVirtual, [](const NodeTree&) {},
       asleep},
      {"nvlink", Verdict::kFail, "0 of 12 links are active", kA100, [](const NodeTree&) {}, asleep},
      {"fabric", Verdict::kPass, "registration completed", kH100},
      {"fabric", Verdict::kPass, "nv-fabricmanager runs", kA100},
      {"fabric", Verdict::kFail, "registration not started", kBroken},
      {"fabric", Verdict::kFail, "completed with status 15", kH100, [](const NodeTree&) {},
       refused},
      {"fabric", Verdict::kFail, "bandwidth is degraded, routes are unhealthy", kH100,
       [](const NodeTree&) {}, ill},
      {"fabric", Verdict::kFail, "no nv-fabricmanager runs", kA100, no_manager},
      {"fabric", Verdict::kUnknown, "cannot be seen from here", kA100, unseen},
      {"fabric", Verdict::kSkip, "no NVSwitch", kSockets},
      {"imex", Verdict::kUnknown, "nvidia-imex runs here", kTray},
      {"imex", Verdict::kFail, "no nvidia-imex runs", kTray, no_manager},
      {"imex", Verdict::kFail, "offers no nvidia-caps-imex-channels", kTray,
       put("proc/devices", "195 nvidia\n")},
      {"imex", Verdict::kUnknown, "1 channels exist", kTray, unseen},
      {"imex", Verdict::kUnknown, "/proc/devices cannot be read", kTray, drop("proc/devices")},
      {"imex", Verdict::kSkip, "no NVLink domain", kH100},
      {"gdrcopy", Verdict::kPass, "gdrdrv is loaded", kH100,
       put("proc/devices", "195 nvidia\n240 gdrdrv\n")},
      {"gdrcopy", Verdict::kSkip, "not loaded", kH100},
      {"gdrcopy", Verdict::kUnknown, "cannot be read", kH100, drop("proc/devices")},
      {"hugepages", Verdict::kPass, "64 of 2048 KiB", kH100,
       put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n")},
      {"hugepages", Verdict::kUnknown, "no pools", kVirtual},
      {"memlock", Verdict::kUnknown, "in the job's pod", kH100},
      {"uverbs-access", Verdict::kUnknown, "in the job's pod", kH100},
      {"nccl-env", Verdict::kUnknown, "in the job's pod", kH100},
      {"nccl-env", Verdict::kSkip, "no accelerator", "nothing"},
  };
}

std::vector<CheckCase> all_cases() {
  std::vector<CheckCase> all;
  for (const auto& some : {health_cases(), registration_cases(), live_cases(), bus_cases(),
                           placement_cases(), port_cases(), nvlink_cases()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

std::vector<Finding> findings_of(const NodeTree& tree, std::string_view fixture,
                                 const std::function<void(Hardware&)>& alter = {},
                                 std::optional<EarlierCounters> earlier = {},
                                 std::optional<Registrations> registrations = {}) {
  const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
  if (!library) {
    ADD_FAILURE() << library.error().message;
    return {};
  }
  Hardware hardware = probe_hardware(tree.root(), **library);
  if (alter) alter(hardware);
  const Settings settings = read_settings(tree.root(), hardware);
  return run_checks(Node(hardware, settings, std::move(earlier), std::move(registrations)));
}

class CheckCases : public testing::TestWithParam<CheckCase> {};

TEST_P(CheckCases, SaysWhatItFound) {
  const CheckCase& row = GetParam();
  const NodeTree tree(row.fixture);
  row.change(tree);
  std::string said;
  for (const auto& finding :
       findings_of(tree, row.fixture, row.alter, row.earlier, row.registrations)) {
    if (finding.id != row.id) continue;
    if (finding.verdict == row.verdict &&
        finding.evidence.find(row.evidence) != std::string::npos) {
      const bool mend = row.verdict == Verdict::kFail || row.verdict == Verdict::kWarn;
      EXPECT_EQ(finding.remedy.empty(), !mend);
      return;
    }
    said += std::string(to_string(finding.verdict)) + " " + finding.subject + ": " +
            finding.evidence + "\n";
  }
  ADD_FAILURE() << "instead:\n" << said;
}

INSTANTIATE_TEST_SUITE_P(Table, CheckCases, testing::ValuesIn(all_cases()));

TEST(CheckTable, EveryCheckIsSeenPassingFailingAndNotKnowing) {
  std::map<std::string, std::set<Verdict>> seen;
  for (const auto& row : all_cases()) seen[row.id].insert(row.verdict);
  for (const auto& check : checks()) {
    const std::string id(check.id);
    // The environment of a pod is not checked here.
    if (id != "nccl-env") {
      EXPECT_TRUE(seen[id].contains(check.severity)) << id;
      EXPECT_TRUE(seen[id].contains(Verdict::kPass)) << id;
    }
    EXPECT_TRUE(seen[id].contains(Verdict::kUnknown)) << id;
  }
}

TEST(CheckTable, NamesEachCheckOnceWithARemedy) {
  std::set<std::string_view> ids;
  for (const auto& check : checks()) {
    EXPECT_TRUE(ids.insert(check.id).second) << check.id;
    EXPECT_EQ(find_check(check.id), &check);
    EXPECT_FALSE(check.title.empty() || check.reads.empty()) << check.id;
    EXPECT_EQ(check.remedy.empty(), check.severity == Verdict::kPass) << check.id;
  }
  EXPECT_EQ(find_check("nonsense"), nullptr);
}

/// The expected rows of the table in docs/operate/checks.md.
std::string documented_table() {
  constexpr const char* kConcerns[] = {"", "GpuDirectReady", "FabricHealthy", "GpuHealthy"};
  std::string text;
  for (const auto& check : checks()) {
    const std::string id = "`" + std::string(check.id) + "`";
    text += "| " + (check.link.empty() ? id : "[" + id + "](" + std::string(check.link) + ")") +
            " | " + std::string(to_string(check.place)) + " | " +
            std::string(to_string(check.severity)) + " | " +
            kConcerns[static_cast<std::size_t>(check.concern)] + " | " + std::string(check.reads) +
            " | " + std::string(check.remedy) + " |\n";
  }
  for (auto at = text.find('*'); at != std::string::npos; at = text.find('*', at + 2))
    text.insert(at, 1, '\\');
  return text;
}

TEST(CheckTable, IsTheOneInItsDesign) {
  std::ifstream file(std::string(PACELINE_SOURCE_DIR) + "/docs/operate/checks.md");
  const std::string design{std::istreambuf_iterator<char>(file), {}};
  const std::string table = documented_table();
  const auto first = design.find("| [`" + std::string(checks().front().id) + "`]");
  ASSERT_NE(first, std::string::npos) << "docs/operate/checks.md wants these rows:\n" << table;
  EXPECT_EQ(design.substr(first, design.find("\n\n", first) + 1 - first), table)
      << "docs/operate/checks.md has other rows than agent/checks/table.cpp";
}

TEST(CheckTable, EveryMachineGetsAnAnswerToEveryCheck) {
  for (const char* fixture :
       {kH100, kBroken, kA100, kTray, kSockets, kVirtual, kVirtualRdma, "cloud-vm", "nothing"}) {
    const NodeTree tree(fixture);
    std::set<std::string> answered;
    for (const auto& finding : findings_of(tree, fixture)) {
      answered.insert(finding.id);
      EXPECT_FALSE(finding.evidence.empty()) << fixture << " " << finding.id;
      EXPECT_THAT(finding.evidence, testing::Not(HasSubstr("nothing to look at")))
          << fixture << " " << finding.id;
    }
    EXPECT_EQ(answered.size(), checks().size()) << fixture;
  }
}

TEST(CheckTable, ShowsNothingThatATerminalObeys) {
  const NodeTree tree(kH100);
  tree.write("sys/class/infiniband/mlx5_3/fw_ver", "28\x1b[2J\x07.39");
  tree.write(kPort3 + "link_layer", std::string(60, '\x1b'));
  for (const auto& finding : findings_of(tree, kH100)) {
    for (const char c : finding.evidence + finding.subject)
      EXPECT_TRUE(c >= 0x20 && c <= 0x7e) << finding.id;
    EXPECT_LE(finding.evidence.size(), 240U);
  }
}

TEST(CheckTable, AHostileMachineIsOnlyNotKnown) {
  const NodeTree tree(kA100);
  namespace fs = std::filesystem;
  for (const auto& entry : fs::recursive_directory_iterator(tree.folder() / "sys/devices")) {
    if (entry.is_regular_file() && entry.path().filename() == "config")
      std::ofstream(entry.path(), std::ios::binary) << std::string(4096, '\xff');
  }
  tree.write("proc/modules", std::string(1U << 20U, 'm'));
  tree.write("proc/devices", std::string(1U << 20U, '\n'));
  tree.write("sys/module/nvidia_peermem/parameters/peerdirect_support", "999999999999999999999");
  const auto findings = findings_of(tree, kA100);
  EXPECT_EQ(worst(findings, "acs"), Verdict::kUnknown);
  EXPECT_EQ(worst(findings, "pcie-mrrs"), Verdict::kUnknown);
  EXPECT_EQ(worst(findings, "peermem-params"), Verdict::kUnknown);
}

}  // namespace
}  // namespace paceline::agent
