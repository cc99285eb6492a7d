// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {

std::vector<CheckCase> bus_cases() {
  return {
      {"acs", Verdict::kSkip, "without the guest's doing", kEfa},
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

std::vector<CheckCase> placement_cases() {
  const auto no_numa = [](const NodeTree& tree) {
    tree.write(pci_file("0000:18:00.0", "numa_node"), "-1\n");
  };
  return {
      {"gpu-nic-distance", Verdict::kPass, "PIX to mlx5_0", kH100},
      {"gpu-nic-distance", Verdict::kPass, "P2C to mlx5_0", kTray},
      {"gpu-nic-distance", Verdict::kFail, "PHB to mlx5_0 at best", kSockets},
      // Half as many NICs as GPUs: NCCL goes over NVLink to the GPU beside a NIC.
      {"gpu-nic-distance", Verdict::kPass, "PXN: NV18 to GPU1, PIX from there to mlx5_1", kH100,
       drop("sys/class/infiniband/mlx5_0")},
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
      {"bar1", Verdict::kWarn, "BAR 1 of 256 MiB, memory of 81559 MiB", kBroken},
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

}  // namespace paceline::agent
