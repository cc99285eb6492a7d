// SPDX-License-Identifier: Apache-2.0
// Which RDMA ports NCCL should use between hosts. NCCL takes every active port. Ports for storage
// and management are left out where their facts tell them apart; where they do not, nothing is.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/fabric/machine.hpp"

namespace paceline::fabric {

struct RdmaChoice {
  int taken = 0;       // active ports that NCCL should use; 0: there is none
  std::string list;    // for NCCL_IB_HCA; empty: NCCL's own choice is right
  std::string reason;  // of the list: what is left out, and why
  std::string summary;
  bool only_ipv6 = false;  // all use RoCE, and NCCL finds an address only if it looks for IPv6
  int gid_index = -1;      // RoCE v2 with IPv4, the same for all ports; -1: there is none
};

RdmaChoice choose_ports(const std::vector<RdmaPort>& ports);

}  // namespace paceline::fabric
