// SPDX-License-Identifier: Apache-2.0
// What can be told from an RDMA device alone. The fabric and the checks use it. Pure; nothing
// fails.
#pragma once

#include <string>
#include <string_view>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// Elastic Fabric Adapter of AWS: libfabric uses it, its driver registers GPU memory by itself, and
/// the kernel knows no link layer of it.
bool is_efa(const RdmaDevice& device);

/// True for a virtual function (SR-IOV) of a NIC, also in a guest, which sees only its device
/// number.
bool is_virtual_function(const PciFunction& function);

inline constexpr std::string_view kUnknownLayer = "RDMA";

/// The port's link layer as people call it: "InfiniBand", "Ethernet", "EFA", or kUnknownLayer.
std::string link_layer_name(const RdmaDevice& device, const RdmaPort& port);

}  // namespace paceline::agent
