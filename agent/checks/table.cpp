// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "agent/checks/check_functions.hpp"

namespace paceline::agent {
namespace {

// Documentation of each setting by its vendor.
constexpr std::string_view kXid = "https://docs.nvidia.com/deploy/xid-errors/index.html";
constexpr std::string_view kMemoryErrors =
    "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html";
constexpr std::string_view kGpuDirect = "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html";
constexpr std::string_view kNccl =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html";
constexpr std::string_view kNcclEnv =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";
constexpr std::string_view kFabricManager =
    "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html";
constexpr std::string_view kImex =
    "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/index.html";
constexpr std::string_view kKernel = "https://docs.kernel.org/admin-guide/kernel-parameters.html";
constexpr std::string_view kPci = "https://docs.kernel.org/PCI/sysfs-pci.html";
constexpr std::string_view kPorts = "https://docs.kernel.org/infiniband/sysfs.html";
constexpr std::string_view kHugePages = "https://docs.kernel.org/admin-guide/mm/hugetlbpage.html";
constexpr std::string_view kGdrCopy = "https://github.com/NVIDIA/gdrcopy";
constexpr std::string_view kNone;

constexpr std::array kChecks{
    Check{"gpu-health", "every accelerator answers", Place::kDaemon, Verdict::kFail, Concern::kGpu,
          "/sys/bus/pci/devices/*/config, NVML",
          "see the kernel log for Xid and AER errors (Xid 79: fell off the bus); reset the GPU "
          "(nvidia-smi -r) or the "
          "node, and if it stays away have it replaced",
          kXid, check_gpu_health},
    Check{"gpu-memory", "no GPU's memory is failing", Place::kDaemon, Verdict::kFail, Concern::kGpu,
          "NVML: uncorrected ECC errors, replaced rows, recovery action",
          "drain the node and reset the GPU (nvidia-smi -r); if a row has no spare left, have the "
          "GPU replaced",
          kMemoryErrors, check_gpu_memory},
    Check{"rdma-driver", "every RDMA NIC has its driver", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/bus/pci/devices/*/driver, /sys/class/infiniband, /sys/module",
          "load the driver that is named, and name it in /etc/modules-load.d; if it does not stay, "
          "see the kernel log for the NIC's address",
          kPorts, check_rdma_driver},
    Check{"dmabuf", "GPU memory can be registered as dma-buf", Place::kProbe, Verdict::kFail,
          Concern::kGpuDirect,
          "/proc/sys/kernel/osrelease, /proc/driver/nvidia/version; paceline-probe",
          "install the driver with its open kernel modules on a kernel from 5.12 on, or load "
          "nvidia_peermem",
          kGpuDirect, check_dmabuf},
    Check{"peermem-loaded", "a peer memory module is loaded, where dma-buf cannot do",
          Place::kDaemon, Verdict::kFail, Concern::kGpuDirect,
          "/sys/module/nvidia_peermem/version, /sys/kernel/mm/memory_peers, /proc/modules",
          "modprobe nvidia_peermem, and name it in /etc/modules-load.d/nvidia-peermem.conf; or use "
          "dma-buf",
          kGpuDirect, check_peermem_loaded},
    Check{"peermem-effective", "the RDMA core uses the peer memory module", Place::kProbe,
          Verdict::kFail, Concern::kGpuDirect, "/proc/modules; paceline-probe",
          "load the RDMA driver before the module: modprobe -r nvidia_peermem && modprobe "
          "nvidia_peermem; if it stays "
          "unused, that driver knows no peer memory: use dma-buf",
          kGpuDirect, check_peermem_effective},
    Check{"peermem-params", "nvidia_peermem has the parameters that its RDMA driver wants",
          Place::kDaemon, Verdict::kFail, Concern::kGpuDirect,
          "/sys/module/nvidia_peermem/parameters/peerdirect_support",
          "set peerdirect_support=0 in /etc/modprobe.d and load nvidia_peermem again", kGpuDirect,
          check_peermem_params},
    Check{"acs", "bridges let GPU and NIC talk directly", Place::kConfig, Verdict::kFail,
          Concern::kGpuDirect,
          "PCI extended capability 0x000d of the bridges between (in a virtual machine: 0x000f of "
          "the NICs)",
          "turn ACS off in firmware, or for each bridge: setpci -s BRIDGE ECAP_ACS+6.w=0000 (at "
          "every boot); in a "
          "virtual machine leave it on and enable ATS on the NIC",
          kNccl, check_acs},
    Check{"iommu", "no IOMMU translates between GPU and NIC", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/bus/pci/devices/*/iommu_group/type, /proc/cmdline",
          "boot with iommu=pt (on Arm iommu.passthrough=1), or turn the IOMMU off in firmware",
          kKernel, check_iommu},
    Check{"gpu-nic-distance", "every GPU has a NIC behind its own switches", Place::kDaemon,
          Verdict::kFail, Concern::kGpuDirect, "the places of both below /sys/devices",
          "move the NIC to a slot beside the GPU, or give the job another NIC; `paceline fabric` "
          "shows the distances",
          kNcclEnv, check_gpu_nic_distance},
    Check{"port-state", "the NICs' ports are up", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/class/infiniband/*/ports/*/{state,phys_state}",
          "check cable, transceiver and switch port; on InfiniBand, that a subnet manager runs",
          kPorts, check_port_state},
    Check{"port-rate", "ports run as fast as their peers", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/class/infiniband/*/ports/*/rate",
          "reseat or replace the cable; compare the switch port's settings", kPorts,
          check_port_rate},
    Check{"link-layer", "the NICs speak one link layer", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/class/infiniband/*/ports/*/link_layer",
          "set one port type with the NIC vendor's tool: mlxconfig -d DEVICE set LINK_TYPE_P1=1 "
          "(InfiniBand) or 2 "
          "(Ethernet)",
          kPorts, check_link_layer},
    Check{"gid", "RoCE ports have an address that can be routed", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/class/infiniband/*/ports/*/{gids,gid_attrs/types}",
          "give the NIC's network device an IPv4 or a global IPv6 address; leave NCCL_IB_GID_INDEX "
          "unset with NCCL from 2.21 on",
          kNcclEnv, check_gid},
    Check{"bar1", "the whole GPU memory can be reached from the bus", Place::kDaemon,
          Verdict::kWarn, Concern::kNone, "NVML, /sys/bus/pci/devices/*/resource",
          "turn on \"above 4G decoding\" and \"resizable BAR\" in firmware", kGpuDirect,
          check_bar1},
    Check{
        "pcie-mps", "every bridge takes the payloads of GPU and NIC", Place::kConfig,
        Verdict::kFail, Concern::kGpuDirect,
        "PCI Express capability, Device Control bits 7:5, of both devices and the bridges between",
        "boot with pci=pcie_bus_safe, or set one size in firmware", kKernel, check_pcie_mps},
    Check{"pcie-link", "PCIe links have the speed and width that both ends can", Place::kProbe,
          Verdict::kFail, Concern::kGpuDirect,
          "/sys/bus/pci/devices/*/{current,max}_link_{speed,width}",
          "reseat the card or its riser; if it stays, have card and slot replaced", kPci,
          check_pcie_link},
    Check{"fabric", "GPUs are registered with the NVLink fabric", Place::kDaemon, Verdict::kFail,
          Concern::kFabric,
          "NVML fabric state; where a GPU tells none, the process nv-fabricmanager",
          "systemctl restart nvidia-fabricmanager (not on GB200 nodes, whose switches are managed "
          "elsewhere); see its "
          "log",
          kFabricManager, check_fabric},
    Check{"imex", "memory can be shared across the NVLink domain", Place::kProbe, Verdict::kFail,
          Concern::kFabric,
          "/proc/devices, /dev/nvidia-caps-imex-channels, the process nvidia-imex; paceline-probe",
          "systemctl start nvidia-imex on every node of the domain (nvidia-imex-ctl -N tells their "
          "state); at every "
          "boot make a "
          "channel: /dev/nvidia-caps-imex-channels/channel0",
          kImex, check_imex},
    Check{"nvlink", "all NVLinks are active, and no errors rise", Place::kDaemon, Verdict::kFail,
          Concern::kFabric, "NVML link states, far ends and error counters",
          "reset the GPUs (nvidia-smi -r); if a link stays down, have the board replaced",
          kFabricManager, check_nvlink},
    Check{"pcie-mrrs", "NICs read in the largest pieces", Place::kConfig, Verdict::kWarn,
          Concern::kNone, "PCI Express capability, Device Control bits 14:12",
          "set 4096 in firmware, or: setpci -s NIC CAP_EXP+8.w=5000:7000 (at every boot)", kNone,
          check_pcie_mrrs},
    Check{"pcie-relaxed-ordering", "writes may overtake each other", Place::kConfig, Verdict::kWarn,
          Concern::kNone, "PCI Express capability, Device Control bit 4",
          "turn relaxed ordering on in firmware, or: setpci -s DEVICE CAP_EXP+8.w=0010:0010 (at "
          "every boot)",
          kNone, check_pcie_relaxed_ordering},
    Check{"numa", "GPU and NIC are on one NUMA node", Place::kDaemon, Verdict::kWarn,
          Concern::kNone, "/sys/bus/pci/devices/*/numa_node; in a job's pod its CPUs",
          "update the firmware, or have the hypervisor show its NUMA nodes; a process is pinned by "
          "the launcher",
          kPci, check_numa},
    Check{"mtu", "RoCE has room for its largest packets", Place::kDaemon, Verdict::kFail,
          Concern::kGpuDirect, "/sys/class/net/*/mtu; paceline-probe",
          "raise the MTU to 4200 or more, on all NICs and switches alike", kNone, check_mtu},
    Check{"pfc-ecn", "RoCE is protected from loss", Place::kDaemon, Verdict::kWarn, Concern::kNone,
          "/sys/class/net/*/{qos,ecn}",
          "with the NIC vendor's tool: mlnx_qos -i NETDEV --trust dscp --pfc 0,0,0,1,0,0,0,0, and "
          "ECN on that priority",
          kNone, check_pfc_ecn},
    Check{"port-errors", "ports count no new errors", Place::kDaemon, Verdict::kWarn,
          Concern::kNone, "/sys/class/infiniband/*/ports/*/{counters,hw_counters}, twice",
          "replace cable or transceiver; if errors stay with the NIC, replace it", kPorts,
          check_port_errors},
    Check{"nic-firmware", "NICs of one kind have one firmware", Place::kDaemon, Verdict::kWarn,
          Concern::kNone, "/sys/class/infiniband/*/{fw_ver,board_id}",
          "update the older ones with the NIC vendor's tool", kPorts, check_nic_firmware},
    Check{
        "xid", "the kernel log names no failing GPU", Place::kDaemon, Verdict::kWarn,
        Concern::kNone, "/dev/kmsg",
        "look the number up in NVIDIA's catalogue; reset the GPU (nvidia-smi -r), and if it comes "
        "back have the GPU replaced",
        kXid, check_xid},
    Check{"memlock", "a process may register memory without limit", Place::kPod, Verdict::kFail,
          Concern::kGpuDirect, "the limit of locked memory in the job's pod: paceline-probe there",
          "set LimitMEMLOCK=infinity for containerd; the capability IPC_LOCK helps only uid 0",
          kNccl, check_memlock},
    Check{"uverbs-access", "the job can open the RDMA devices", Place::kPod, Verdict::kFail,
          Concern::kGpuDirect, "/dev/infiniband/uverbs* of the job's pod: paceline-probe there",
          "ask for the RDMA device plugin's resource in the pod's limits", kNccl,
          check_uverbs_access},
    Check{"nccl-env", "no setting of NCCL keeps it from GPUDirect", Place::kPod, Verdict::kWarn,
          Concern::kNone, "the pod's environment, /etc/nccl.conf, ~/.nccl.conf",
          "unset NCCL_IB_DISABLE, NCCL_DMABUF_ENABLE and NCCL_IB_GID_INDEX; NCCL_NET_GDR_LEVEL is "
          "a word (PXB), "
          "NCCL_IB_HCA matches by "
          "prefix unless it starts with =",
          kNcclEnv, check_nccl_env},
    Check{"gdrcopy", "gdrdrv is there for small copies", Place::kDaemon, Verdict::kPass,
          Concern::kNone, "/proc/devices", "", kGdrCopy, check_gdrcopy},
    Check{"hugepages", "huge pages that are set aside", Place::kDaemon, Verdict::kPass,
          Concern::kNone, "/sys/kernel/mm/hugepages", "", kHugePages, check_hugepages},
};

}  // namespace

std::span<const Check> checks() { return kChecks; }

}  // namespace paceline::agent
