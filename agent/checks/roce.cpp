// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <set>

#include "agent/checks/check_functions.hpp"

namespace paceline::agent {
namespace {

constexpr std::int64_t kHeaders = 104;  // the largest that RoCE v2 adds to a payload
constexpr std::int64_t kLargestPayload = 4096;
constexpr std::int64_t kMtuFor4096 = kLargestPayload + kHeaders;
constexpr std::string_view kIpv4Mapped = "0000:0000:0000:0000:0000:ffff:";
constexpr std::string_view kLinkLocal = "fe80:";

/// The largest payload that fits into a network device's packets; RoCE has five sizes.
std::int64_t payload_of(std::int64_t mtu) {
  std::int64_t payload = kLargestPayload;
  while (payload > 256 && payload + kHeaders > mtu) payload /= 2;
  return payload;
}

/// The first RoCE v2 GID whose value passes `suits`; null if there is none.
template <typename Suits>
const Gid* routable(const RdmaPort& port, Suits suits) {
  const auto found = std::find_if(port.gids.begin(), port.gids.end(), [&](const Gid& gid) {
    return gid.type == "RoCE v2" && suits(std::string_view(gid.value));
  });
  return found == port.gids.end() ? nullptr : &*found;
}

bool can_be_routed(std::string_view value) { return !value.starts_with(kLinkLocal); }

/// True if the node itself gave the NIC an address. The GIDs of a pod's network device, such as a
/// macvlan, are in the same table.
bool has_own_address(const RdmaDevice& nic) {
  return std::any_of(nic.ports.begin(), nic.ports.end(), [&](const RdmaPort& port) {
    return std::any_of(port.gids.begin(), port.gids.end(), [&](const Gid& gid) {
      const bool own = gid.netdev.empty() || std::find(nic.netdevs.begin(), nic.netdevs.end(),
                                                       gid.netdev) != nic.netdevs.end();
      return own && gid.type == "RoCE v2" && can_be_routed(gid.value);
    });
  });
}

constexpr const char* kElsewhere = "its network device is not here: a pod may have it";

/// True if the NIC's network device was moved into another network namespace.
bool is_elsewhere(const Node& node, const RdmaDevice& nic) {
  return std::all_of(nic.netdevs.begin(), nic.netdevs.end(), [&](const std::string& netdev) {
    return node.settings.netdevs_elsewhere.contains(netdev);
  });
}

/// NICs with an Ethernet link; skips the check if there is none.
std::vector<const RdmaDevice*> roce_nics(const Node& node, Findings& found) {
  std::vector<const RdmaDevice*> nics;
  if (!has_nic(node, found)) return nics;
  for (const auto* nic : node.compute_nics) {
    const RdmaPort* port = carrying_port(*nic);
    if (port != nullptr && port->link_layer == "Ethernet") nics.push_back(nic);
  }
  if (nics.empty()) found.skip("no NIC that serves GPUs is known to use RDMA over Ethernet");
  return nics;
}

std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

/// The faults in the quality of service of one network device; empty for none.
std::string qos_fault(const QosSettings& qos) {
  if (qos.trust != "dscp") return "trusts " + qos.trust + ", not dscp";
  if (qos.pfc.empty()) return "no priority has flow control (PFC)";
  const auto on = [](const std::map<int, bool>& points, int priority) {
    const auto point = points.find(priority);
    return point != points.end() && point->second;
  };
  for (const int priority : qos.pfc) {
    if (on(qos.notification_point, priority) && on(qos.reaction_point, priority)) return {};
  }
  return "ECN is off for priority " + list_of(qos.pfc) + ", which has flow control";
}

/// The MTUs that paceline-probe read from the ports. A driver may use a smaller one than its
/// network device allows.
void judge_active_mtu(const Node& node, const std::vector<const RdmaDevice*>& nics,
                      Findings& found) {
  if (!node.registrations) return;
  std::set<int> seen;
  for (const auto* nic : nics) {
    for (const auto& attempt : node.registrations->attempts) {
      int port = 0;
      int active = 0;
      int most = 0;
      if (attempt.step != Step::kPort || attempt.nic != nic->name ||
          std::sscanf(attempt.saw.c_str(), "port %3d MTU %5d of %5d", &port, &active, &most) != 3) {
        continue;
      }
      const auto carrying = carrying_ports(*nic);
      const bool carries = std::any_of(carrying.begin(), carrying.end(),
                                       [&](const RdmaPort* one) { return one->number == port; });
      if (!carries) continue;
      seen.insert(active);
      const std::string subject = nic->name + "/" + std::to_string(port);
      const std::string says =
          "runs at " + std::to_string(active) + " of " + std::to_string(most) + " bytes";
      active >= most ? found.pass(subject, says) : found.warn(subject, says);
    }
  }
  if (seen.size() > 1)
    found.bad("", "the ports of this node differ: " + std::to_string(*seen.begin()) + " to " +
                      std::to_string(*seen.rbegin()) + " bytes");
}

}  // namespace

void check_gid(const Node& node, Findings& found) {
  const auto nics = roce_nics(node, found);
  const bool any_address = std::any_of(nics.begin(), nics.end(),
                                       [](const RdmaDevice* nic) { return has_own_address(*nic); });
  for (const auto* nic : nics) {
    const RdmaPort& port = *carrying_port(*nic);
    const std::string name = port_name(*nic, port);
    if (is_elsewhere(node, *nic)) {
      found.set_aside(name, kElsewhere);
      continue;
    }
    if (port.gids.empty()) {
      found.unknown(name, "its GIDs cannot be read");
      continue;
    }
    const Gid* four =
        routable(port, [](std::string_view value) { return value.starts_with(kIpv4Mapped); });
    const Gid* six = routable(port, can_be_routed);
    if (four != nullptr) {
      found.pass(name, "GID " + std::to_string(four->index) + " is RoCE v2 with an IPv4 address");
    } else if (six != nullptr) {
      found.pass(name, "GID " + std::to_string(six->index) +
                           " is RoCE v2 with an IPv6 address: set NCCL_IB_ADDR_FAMILY=AF_INET6");
    } else {
      const std::string says = "none of its " + std::to_string(port.gids.size()) +
                               " GIDs is RoCE v2 with an address that can be routed";
      // With SR-IOV or macvlan each pod brings its address, and no NIC of the node has one.
      any_address ? found.bad(name, says)
                  : found.warn(name, says + "; right only where pods bring theirs");
    }
  }
}

void check_mtu(const Node& node, Findings& found) {
  std::set<std::int64_t> seen;
  const auto nics = roce_nics(node, found);
  judge_active_mtu(node, nics, found);
  for (const auto* nic : nics) {
    for (const auto& netdev : nic->netdevs) {
      if (node.settings.netdevs_elsewhere.contains(netdev)) {
        found.set_aside(nic->name, kElsewhere);
        continue;
      }
      const auto known = node.settings.mtus.find(netdev);
      if (known == node.settings.mtus.end()) {
        found.unknown(netdev, "its MTU cannot be read");
        continue;
      }
      seen.insert(payload_of(known->second));
      const std::string says = "MTU " + std::to_string(known->second);
      if (known->second >= kMtuFor4096) {
        found.pass(netdev, says);
      } else {
        found.warn(netdev, says + ": RoCE's 4096 wants at least " + std::to_string(kMtuFor4096));
      }
    }
  }
  if (!nics.empty() &&
      std::all_of(nics.begin(), nics.end(), [](const auto* nic) { return nic->netdevs.empty(); }))
    return found.unknown("", "no network device belongs to the RDMA devices");
  if (seen.size() < 2) return;
  found.bad("", "the NICs of this node differ: packets carry " + std::to_string(*seen.begin()) +
                    " to " + std::to_string(*seen.rbegin()) + " bytes");
}

void check_pfc_ecn(const Node& node, Findings& found) {
  for (const auto* nic : roce_nics(node, found)) {
    if (nic->netdevs.empty()) found.unknown(nic->name, "no network device belongs to it");
    for (const auto& netdev : nic->netdevs) {
      if (node.settings.netdevs_elsewhere.contains(netdev)) {
        found.set_aside(nic->name, kElsewhere);
        continue;
      }
      const auto qos = node.settings.qos.find(netdev);
      if (qos == node.settings.qos.end() || qos->second.trust.empty() || !qos->second.pfc_known) {
        found.unknown(netdev,
                      "its driver shows no quality of service in sysfs: ask the NIC vendor's tool "
                      "(mlnx_qos -i " +
                          netdev + ")");
        continue;
      }
      const std::string fault = qos_fault(qos->second);
      fault.empty()
          ? found.pass(netdev, "trusts dscp, PFC and ECN on priority " + list_of(qos->second.pfc))
          : found.bad(netdev, fault);
    }
  }
}

}  // namespace paceline::agent
