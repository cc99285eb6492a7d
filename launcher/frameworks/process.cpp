// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/process.hpp"

#include "common/contract/host_ports.hpp"
#include "common/net/address.hpp"

namespace paceline::frameworks {

using rendezvous::Node;
using rendezvous::RankTable;

Group group_of(const Process& process) {
  Group group;
  for (const Node& node : process.table.nodes) {
    if (contract::trains(node.kind)) ++group.size;
    if (node.first_rank < process.node.first_rank) ++group.rank;
  }
  return group;
}

int count(const RankTable& table, RoleKind kind) {
  int processes = 0;
  for (const Node& node : table.nodes) {
    if (node.kind == kind) processes += node.processes;
  }
  return processes;
}

const Node* first_of(const RankTable& table, RoleKind kind) {
  const Node* first = nullptr;
  for (const Node& node : table.nodes) {
    if (node.kind == kind && (first == nullptr || node.first_rank < first->first_rank))
      first = &node;
  }
  return first;
}

int index_of(const Process& process) {
  return process.rank() - first_of(process.table, process.node.kind)->first_rank;
}

std::uint16_t port_of(const RankTable& table, const Node& node, int local_rank, int base) {
  if (node.port_base != 0) return contract::host_process_port(node.port_base, local_rank);
  if (table.port_base != 0)
    return static_cast<std::uint16_t>(table.port_base + node.first_rank + local_rank);
  return static_cast<std::uint16_t>(base + table.attempt % 100 + local_rank);
}

std::vector<std::string> endpoints(const RankTable& table, RoleKind kind, int base) {
  std::vector<std::string> all;
  // Nodes of one kind are in the order of their ranks.
  for (const Node& node : table.nodes) {
    if (node.kind != kind) continue;
    for (int local = 0; local < node.processes; ++local)
      all.push_back(net::to_string({node.host, port_of(table, node, local, base)}));
  }
  return all;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

}  // namespace paceline::frameworks
