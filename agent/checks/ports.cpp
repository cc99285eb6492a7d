// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>

#include "agent/checks/check_functions.hpp"
#include "agent/probe/hardware/rdma.hpp"

namespace paceline::agent {
namespace {

/// Errors that a healthy link does not count. Symbol errors are excluded up to a normal rate.
constexpr std::array kErrors{"link_downed", "excessive_buffer_overrun", "local_link_integrity",
                             "rnr_nak_retry"};
constexpr std::uint64_t kSymbolErrorsPerHour = 120;

/// Where the port's own counters end (InfiniBand, PortCounters): they stay at this value until
/// somebody clears them.
const std::map<std::string, std::uint64_t>& full_counters() {
  static const std::map<std::string, std::uint64_t> kFull{{"link_downed", 0xff},
                                                          {"excessive_buffer_overrun", 0xf},
                                                          {"local_link_integrity", 0xf},
                                                          {"symbol_error", 0xffff}};
  return kFull;
}

std::uint64_t rise(const Counters& before, const std::string& name, std::uint64_t now) {
  const auto earlier = before.find(name);
  if (earlier == before.end()) return 0;
  // A smaller value means that the driver was reloaded and the counter restarted.
  return now >= earlier->second ? now - earlier->second : now;
}

void judge_rate(const RdmaDevice& nic, const RdmaPort& port, std::int64_t best, Findings& found) {
  const std::string name = port_name(nic, port);
  if (!port.rate_mbps) return found.unknown(name, "its rate cannot be read");
  const std::string says = std::to_string(*port.rate_mbps / 1000) + " Gb/s";
  if (*port.rate_mbps == best) {
    found.pass(name, says);
  } else if (port.state.empty()) {
    found.unknown(name, says + ", its peers " + std::to_string(best / 1000) +
                            " Gb/s; a port that is down says its lowest rate");
  } else {
    found.bad(name, says + ", its peers on this node " + std::to_string(best / 1000) + " Gb/s");
  }
}

void judge_errors(const Node& node, const std::string& name, Findings& found) {
  std::string rose;
  std::string full;
  bool any = false;
  const auto judge = [&](const std::string& counter, std::uint64_t allowed) {
    const auto now = node.settings.counters.find(name + " " + counter);
    if (now == node.settings.counters.end()) return;
    any = true;
    if (!node.earlier) return;
    const std::uint64_t more = rise(node.earlier->counters, now->first, now->second);
    if (more > allowed) rose += (rose.empty() ? "" : ", ") + counter + " +" + std::to_string(more);
    const auto most = full_counters().find(counter);
    if (more == 0 && most != full_counters().end() && now->second == most->second)
      full += (full.empty() ? "" : ", ") + counter + " " + std::to_string(now->second);
  };
  for (const char* counter : kErrors) judge(counter, 0);
  // A shorter window may have as many as an hour, because a burst is judged when it is over.
  const std::int64_t hours =
      node.earlier ? std::max<std::int64_t>(1, node.earlier->age.count() / 3600) : 1;
  judge("symbol_error", kSymbolErrorsPerHour * static_cast<std::uint64_t>(hours) - 1);
  if (!any) {
    found.unknown(name, "its counters cannot be read");
  } else if (!node.earlier) {
    found.unknown(name, "one reading says nothing: the agent compares readings over an hour");
  } else if (rose.empty() && !full.empty()) {
    found.unknown(name, full + ": full counters rise no further; clear them with perfquery -R");
  } else if (rose.empty()) {
    found.pass(name, "no error within " + std::to_string(node.earlier->age.count() / 60) + " min");
  } else {
    found.bad(name, rose + " within " + std::to_string(node.earlier->age.count() / 60) + " min");
  }
}

/// Ports without a link that serve no GPU: a spare port is delivered without a cable.
void tell_spare_ports(const Node& node, Findings& found) {
  if (node.fabric.gpus.empty()) return;
  for (const auto& device : node.hardware.rdma) {
    if (device.pci_address.empty() || node.is_compute(device)) continue;
    for (const auto& port : device.ports) {
      if (port.state != "ACTIVE" && !port.state.empty())
        found.set_aside(port_name(device, port), port.state + ", and no GPU depends on it");
    }
  }
}

/// NICs with another link layer that serve no GPU, such as a bond for storage.
void tell_other_layers(const Node& node, const std::string& layer, Findings& found) {
  for (const auto& device : node.hardware.rdma) {
    if (device.pci_address.empty() || node.is_compute(device) || node.fabric.gpus.empty()) continue;
    for (const auto& port : device.ports) {
      const std::string other = link_layer_name(device, port);
      if (port.state == "ACTIVE" && other != layer && other != kUnknownLayer)
        found.set_aside(port_name(device, port),
                        other + " beside the GPUs' " + layer + ": leave it out of NCCL_IB_HCA");
    }
  }
}

}  // namespace

std::vector<const RdmaPort*> carrying_ports(const RdmaDevice& device) {
  std::vector<const RdmaPort*> ports;
  for (const auto& port : device.ports) {
    if (port.state == "ACTIVE") ports.push_back(&port);
  }
  if (ports.empty() && !device.ports.empty()) ports.push_back(&device.ports.front());
  return ports;
}

const RdmaPort* carrying_port(const RdmaDevice& device) {
  const auto ports = carrying_ports(device);
  return ports.empty() ? nullptr : ports.front();
}

std::string port_name(const RdmaDevice& device, const RdmaPort& port) {
  return device.name + "/" + std::to_string(port.number);
}

void check_port_state(const Node& node, Findings& found) {
  if (!has_nic(node, found)) return;
  tell_spare_ports(node, found);
  for (const auto* nic : node.compute_nics) {
    const RdmaPort* port = carrying_port(*nic);
    if (port == nullptr || port->state.empty()) {
      found.unknown(nic->name, "the state of its ports cannot be read");
      continue;
    }
    const std::string says =
        port->state + ", " + (port->phys_state.empty() ? "link not known" : port->phys_state);
    if (port->state == "ACTIVE" && (port->phys_state == "LinkUp" || port->phys_state.empty())) {
      found.pass(port_name(*nic, *port), says);
    } else {
      found.bad(port_name(*nic, *port), says);
    }
  }
}

void check_port_rate(const Node& node, Findings& found) {
  if (!has_nic(node, found)) return;
  std::map<std::string, std::int64_t> best;  // by board
  for (const auto* nic : node.compute_nics) {
    for (const RdmaPort* port : carrying_ports(*nic)) {
      if ((port->state == "ACTIVE" || port->state.empty()) && port->rate_mbps)
        best[nic->board_id] = std::max(best[nic->board_id], *port->rate_mbps);
    }
  }
  bool any = false;
  for (const auto* nic : node.compute_nics) {
    for (const RdmaPort* port : carrying_ports(*nic)) {
      // A port that is down is reported by port-state.
      if (port->state != "ACTIVE" && !port->state.empty()) continue;
      any = true;
      judge_rate(*nic, *port, best[nic->board_id], found);
    }
  }
  if (any) return;
  found.unknown(
      "", node.hardware.from_topology_file ? "the topology file holds no rates" : "no port is up");
}

void check_link_layer(const Node& node, Findings& found) {
  if (!has_nic(node, found)) return;
  std::map<std::string, std::string> layers;  // layer -> ports
  for (const auto* nic : node.compute_nics) {
    for (const RdmaPort* port : carrying_ports(*nic)) {
      const std::string layer = link_layer_name(*nic, *port);
      if (layer == kUnknownLayer) continue;
      auto& ports = layers[layer];
      ports += (ports.empty() ? "" : " ") + port_name(*nic, *port);
    }
  }
  if (layers.empty()) return found.unknown("", "no port says its link layer");
  if (layers.size() == 1) {
    const std::string& layer = layers.begin()->first;
    tell_other_layers(node, layer, found);
    return found.pass("", layer);
  }
  std::string says;
  for (const auto& [layer, ports] : layers)
    says += (says.empty() ? "" : "; ") + layer + ": " + ports;
  found.bad("", says);
}

void check_port_errors(const Node& node, Findings& found) {
  if (!has_nic(node, found)) return;
  for (const auto* nic : node.compute_nics) {
    for (const RdmaPort* port : carrying_ports(*nic))
      judge_errors(node, port_name(*nic, *port), found);
  }
}

void check_nic_firmware(const Node& node, Findings& found) {
  if (!has_nic(node, found)) return;
  std::map<std::string, std::map<std::string, std::string>> boards;  // board -> version -> NICs
  for (const auto* nic : node.compute_nics) {
    if (is_efa(*nic)) {
      found.set_aside(nic->name, "AWS keeps the firmware of its adapters");
      continue;
    }
    if (nic->firmware.empty() || nic->board_id.empty()) {
      found.unknown(nic->name, "its firmware version or board cannot be read");
      continue;
    }
    auto& nics = boards[nic->board_id][nic->firmware];
    nics += (nics.empty() ? "" : " ") + nic->name;
  }
  for (const auto& [board, versions] : boards) {
    std::string says;
    for (const auto& [version, nics] : versions) {
      says += (says.empty() ? "" : "; ") + board + " " + version;
      if (versions.size() > 1) says += ": " + nics;
    }
    versions.size() > 1 ? found.bad("", says) : found.pass("", says);
  }
}

}  // namespace paceline::agent
