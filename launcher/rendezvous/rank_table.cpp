// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/rank_table.hpp"

#include <utility>

namespace paceline::rendezvous {

RankTable make_rank_table(int attempt, std::uint16_t master_port, std::vector<Node> nodes) {
  RankTable table;
  table.attempt = attempt;
  table.master_port = master_port;
  for (Node& node : nodes) {
    node.first_rank = table.world_size;
    table.world_size += node.processes;
  }
  if (!nodes.empty()) table.master_address = nodes.front().address;
  table.nodes = std::move(nodes);
  return table;
}

}  // namespace paceline::rendezvous
