// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/hardware/rdma.hpp"

namespace paceline::agent {
namespace {

constexpr std::uint32_t kMellanox = 0x15b3;
constexpr std::uint32_t kAmazon = 0x1d0f;
constexpr std::uint32_t kEthernet = 0x0200;
constexpr std::uint32_t kInfiniband = 0x0207;

/// The driver that makes an RDMA device of a function, and the module that adds RDMA to it.
struct RdmaDriver {
  std::string_view driver;
  std::string_view module;
};

/// Null for a function that need not be an RDMA device, such as most Ethernet cards.
const RdmaDriver* wanted_driver(const PciFunction& function) {
  static constexpr RdmaDriver kMlx5{"mlx5_core", "mlx5_ib"};
  static constexpr RdmaDriver kMlx4{"mlx4_core", "mlx4_ib"};
  static constexpr RdmaDriver kEfa{"efa", "efa"};
  const std::uint32_t kind = function.class_code >> 8U;
  if (function.virtual_function) return nullptr;
  // ConnectX-3 has device numbers below those of Connect-IB.
  constexpr std::uint32_t kConnectIb = 0x1011;
  if (function.vendor == kMellanox && (kind == kEthernet || kind == kInfiniband))
    return function.device < kConnectIb ? &kMlx4 : &kMlx5;
  if (function.vendor == kAmazon && function.device >= 0xefa0 && function.device <= 0xefaf)
    return &kEfa;
  return nullptr;
}

/// Why a function with this driver is no RDMA device; `sure` if that is a fault.
struct Reason {
  std::string text;
  bool sure = false;
};

Reason why_missing(const Node& node, const PciFunction& function, const RdmaDriver& wanted) {
  const std::string driver(wanted.driver);
  const std::string module(wanted.module);
  const auto& loaded = node.settings.rdma_modules;
  if (function.driver.empty()) return {"no driver is bound: modprobe " + driver, true};
  if (function.driver != driver) return {"is bound to " + function.driver, false};
  if (std::find(loaded.begin(), loaded.end(), module) == loaded.end())
    return {driver + " is bound, but " + module + " is not loaded: modprobe " + module, true};
  return {driver + " and " + module +
              " are loaded; its RDMA device may be in another network namespace",
          false};
}

}  // namespace

void check_rdma_driver(const Node& node, Findings& found) {
  if (node.fabric.gpus.empty()) return found.skip("no accelerator");
  if (node.hardware.from_topology_file)
    return found.unknown("", "a topology file does not tell which drivers are loaded");
  std::size_t well = 0;
  std::size_t all = 0;
  for (const auto& function : node.hardware.pci) {
    const RdmaDriver* wanted = wanted_driver(function);
    if (wanted == nullptr) continue;
    ++all;
    const bool there =
        std::any_of(node.hardware.rdma.begin(), node.hardware.rdma.end(),
                    [&](const RdmaDevice& nic) { return nic.pci_address == function.address; });
    if (there) {
      ++well;
      continue;
    }
    const Reason why = why_missing(node, function, *wanted);
    // Beside NICs that work, an Ethernet function may be meant for other traffic.
    const bool needed = node.compute_nics.empty() || function.class_code >> 8U == kInfiniband;
    if (why.sure && needed) {
      found.bad(function.address, why.text);
    } else if (function.driver != wanted->driver) {
      found.set_aside(function.address, why.text);
    } else if (needed) {
      found.unknown(function.address, why.text);
    }
  }
  if (all == 0) return found.skip("no NIC on the bus that needs an RDMA driver");
  if (well > 0)
    found.pass("", std::to_string(well) + " of " + std::to_string(all) +
                       " NICs that can do RDMA have an RDMA device");
}

}  // namespace paceline::agent
