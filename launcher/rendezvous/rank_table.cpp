// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/rank_table.hpp"

#include <algorithm>
#include <utility>

#include "common/contract/names.hpp"

namespace paceline::rendezvous {

int number_ranks(std::vector<Node>& nodes) {
  int rank = 0;
  int world_size = 0;
  for (std::size_t kind = 0; kind < contract::kRoleKinds.size(); ++kind) {
    for (Node& node : nodes) {
      if (node.kind != static_cast<contract::RoleKind>(kind)) continue;
      node.first_rank = rank;
      rank += node.processes;
      if (contract::trains(node.kind)) world_size = rank;
    }
  }
  return world_size;
}

void name_hosts(RankTable& table, const std::string& job, const std::string& subdomain) {
  // The operator names a subdomain only for jobs whose workers fail alone.
  constexpr bool kServers = true;
  constexpr bool kScheduler = false;
  table.master_host = table.master_address;
  for (Node& node : table.nodes) {
    node.host = node.address;
    if (subdomain.empty() || !contract::fails_alone(node.kind, kServers, kScheduler)) continue;
    node.host = contract::host_name(job, node.role, node.replica_index) + "." + subdomain;
    if (node.first_rank == 0) table.master_host = node.host;
  }
}

int processes_in(const RankTable& table) {
  int processes = 0;
  for (const Node& node : table.nodes) processes += node.processes;
  return processes;
}

RankTable make_rank_table(int attempt, std::uint16_t master_port, std::vector<Node> nodes) {
  RankTable table;
  table.attempt = attempt;
  table.master_port = master_port;
  table.world_size = number_ranks(nodes);
  const auto first = std::ranges::find(nodes, 0, &Node::first_rank);
  if (first != nodes.end()) table.master_address = first->address;
  table.nodes = std::move(nodes);
  name_hosts(table, "", "");
  return table;
}

}  // namespace paceline::rendezvous
