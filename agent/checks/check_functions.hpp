// SPDX-License-Identifier: Apache-2.0
// The functions of the table in table.cpp; see check.hpp. Each adds at least one finding: a skip
// with its reason if the check does not apply.
#pragma once

#include <string>
#include <vector>

#include "agent/checks/check.hpp"

namespace paceline::agent {

// health.cpp: whether the GPUs are there at all, and whether they are failing
void check_gpu_health(const Node& node, Findings& found);
void check_gpu_memory(const Node& node, Findings& found);
void check_xid(const Node& node, Findings& found);

// driver.cpp: whether the NICs have drivers
void check_rdma_driver(const Node& node, Findings& found);

// registration.cpp: which way GPU memory is registered with a NIC
/// The GPU of an attempt; null if this node does not have it.
const FabricDevice* gpu_of(const Node& node, const Attempt& attempt);
void check_dmabuf(const Node& node, Findings& found);
void check_peermem_loaded(const Node& node, Findings& found);
void check_peermem_effective(const Node& node, Findings& found);
void check_peermem_params(const Node& node, Findings& found);

// bus.cpp: what lies between GPU and NIC
void check_acs(const Node& node, Findings& found);
void check_iommu(const Node& node, Findings& found);
void check_pcie_mrrs(const Node& node, Findings& found);
void check_pcie_mps(const Node& node, Findings& found);
void check_pcie_relaxed_ordering(const Node& node, Findings& found);
void check_pcie_link(const Node& node, Findings& found);

// placement.cpp: where GPUs and NICs are
void check_gpu_nic_distance(const Node& node, Findings& found);
void check_numa(const Node& node, Findings& found);
void check_bar1(const Node& node, Findings& found);

// ports.cpp: the NICs and their links
void check_port_state(const Node& node, Findings& found);
void check_port_rate(const Node& node, Findings& found);
void check_link_layer(const Node& node, Findings& found);
void check_port_errors(const Node& node, Findings& found);
void check_nic_firmware(const Node& node, Findings& found);

// roce.cpp: what RDMA over Ethernet needs
void check_gid(const Node& node, Findings& found);
void check_mtu(const Node& node, Findings& found);
void check_pfc_ecn(const Node& node, Findings& found);

// nvlink.cpp: the links between GPUs
void check_nvlink(const Node& node, Findings& found);
void check_fabric(const Node& node, Findings& found);
void check_imex(const Node& node, Findings& found);

// pod.cpp: what a job's pod may do
void check_memlock(const Node& node, Findings& found);
void check_uverbs_access(const Node& node, Findings& found);
void check_nccl_env(const Node& node, Findings& found);

// extras.cpp: what is only told
void check_gdrcopy(const Node& node, Findings& found);
void check_hugepages(const Node& node, Findings& found);

/// Skips the check and returns false on a node without accelerators or without RDMA devices that
/// jobs use.
bool has_gpu_and_nic(const Node& node, Findings& found);
/// The same for checks of NICs alone.
bool has_nic(const Node& node, Findings& found);
/// The same for checks of NVIDIA GPUs alone.
bool has_nvidia(const Node& node, Findings& found);

/// The ports that carry traffic: those that are up, else the first.
std::vector<const RdmaPort*> carrying_ports(const RdmaDevice& device);
/// The port that carries traffic: the first that is up, else the first.
const RdmaPort* carrying_port(const RdmaDevice& device);
std::string port_name(const RdmaDevice& device, const RdmaPort& port);

}  // namespace paceline::agent
