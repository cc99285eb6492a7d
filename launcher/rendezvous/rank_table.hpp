// SPDX-License-Identifier: Apache-2.0
// The rank table: the members of the gang in one attempt, and which ranks each pod runs. The
// launcher of node rank 0 makes it and sends it to the others; each writes it for its ranks
// (PACELINE_RANK_TABLE). Values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::rendezvous {

struct Node {
  int node_rank = 0;
  std::string role;
  int replica_index = 0;
  int incarnation = 0;
  std::string pod_name;
  std::string address;
  std::string node_name;
  int processes = 1;
  int first_rank = 0;
};

struct RankTable {
  int attempt = 0;
  int world_size = 0;
  std::string master_address;
  std::uint16_t master_port = 0;
  std::vector<Node> nodes;  // by node rank
};

/// Fills in ranks, world size and master address from `nodes`, which are ordered by node rank.
RankTable make_rank_table(int attempt, std::uint16_t master_port, std::vector<Node> nodes);

}  // namespace paceline::rendezvous
