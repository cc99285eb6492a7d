// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "tests/unit/agent/checks/check_case.hpp"

namespace paceline::agent {
namespace {

/// The cards are on the bus, and no driver took them: the commonest cause of missing RDMA.
void no_drivers(const NodeTree& tree) {
  tree.remove("sys/class/infiniband");
  for (const char* bus : {"1a:00.0", "1b:00.0", "1b:00.1", "3c:00.0", "4d:00.0", "5e:00.0",
                          "9c:00.0", "9d:00.0", "9d:00.1", "bc:00.0", "cc:00.0", "dc:00.0"})
    std::filesystem::remove(tree.folder() / pci_file("0000:" + std::string(bus), "driver"));
}

}  // namespace

std::vector<CheckCase> registration_cases() {
  return {
      {"dmabuf", Verdict::kUnknown, "no registration was tried", kH100},
      {"dmabuf", Verdict::kFail, "kernel 4.19.0-27-amd64 is older than 5.12, and no peer", kH100,
       put("proc/sys/kernel/osrelease", "4.19.0-27-amd64\n")},
      {"dmabuf", Verdict::kUnknown, "kernel 4.18.0-553.el8_10.x86_64 is older than 5.12, but it or",
       kH100, put("proc/sys/kernel/osrelease", "4.18.0-553.el8_10.x86_64\n")},
      {"dmabuf", Verdict::kUnknown, "may carry dma-buf back", kH100,
       [](const NodeTree& tree) {  // MLNX_OFED brings its own RDMA core
         tree.write("proc/sys/kernel/osrelease", "5.4.0-187-generic\n");
         tree.write("sys/module/mlx5_core/version", "23.10-2.1.3\n");
       }},
      {"dmabuf", Verdict::kPass, "EFA's driver registers memory of NVIDIA itself", kEfa},
      {"dmabuf", Verdict::kPass, "with efa_nv_peermem", kEfa,
       [](const NodeTree& tree) {
         for (const char* bus : {"01.6/0000:6e", "01.7/0000:6f", "02.0/0000:70", "02.1/0000:71"})
           tree.remove("sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/0000:5f:" +
                       std::string(bus) + ":00.0/p2p");
         tree.write("sys/module/efa_nv_peermem/version", "1.2.1\n");
       }},
      {"dmabuf", Verdict::kUnknown, "names no memory that it registers", kEfa,
       [](const NodeTree& tree) { tree.write(pci_file("0000:6e:00.0", "p2p"), "none\n"); }},
      {"peermem-loaded", Verdict::kSkip, "EFA's driver registers GPU memory without", kEfa},
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
      {"rdma-driver", Verdict::kPass, "8 of 9 NICs that can do RDMA have", kH100},
      {"rdma-driver", Verdict::kPass, "12 of 12 NICs", kXe9680},
      {"rdma-driver", Verdict::kPass, "4 of 4 NICs", kEfa},
      {"rdma-driver", Verdict::kFail, "no driver is bound: modprobe mlx5_core", kXe9680,
       no_drivers},
      {"rdma-driver", Verdict::kFail, "mlx5_core is bound, but mlx5_ib is not loaded", kXe9680,
       [](const NodeTree& tree) {
         tree.remove("sys/class/infiniband");
         tree.write("proc/modules", "mlx5_core 40960 0 - Live 0x0\n");
       }},
      {"rdma-driver", Verdict::kUnknown, "may be in another network namespace", kXe9680,
       drop("sys/class/infiniband")},
      {"rdma-driver", Verdict::kSkip, "is bound to vfio-pci", kXe9680,
       [](const NodeTree& tree) {  // given to a virtual machine
         tree.remove("sys/class/infiniband/mlx5_0");
         const auto driver = tree.folder() / pci_file("0000:1a:00.0", "driver");
         const auto target = tree.folder() / "sys/bus/pci/drivers/vfio-pci";
         std::filesystem::create_directories(target);
         std::filesystem::remove(driver);
         std::filesystem::create_symlink(target, driver);
       }},
      {"rdma-driver", Verdict::kSkip, "no NIC on the bus that needs", kVirtual},
  };
}

}  // namespace paceline::agent
