// SPDX-License-Identifier: Apache-2.0
// The rank table: the members of the gang in one attempt, and which ranks each pod runs. The
// launcher of node rank 0 makes it and sends it to the others; each writes it for its ranks
// (PACELINE_RANK_TABLE). Values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/contract/roles.hpp"

namespace paceline::rendezvous {

inline constexpr int kMostNodes = 100'000;
inline constexpr int kMostProcesses = 64;
inline constexpr int kMostRanks = kMostNodes * kMostProcesses;
inline constexpr int kMostStages = 15;
inline constexpr int kMostAttempts = 1'000'000'000;

struct Node {
  int node_rank = 0;
  std::string role;
  int replica_index = 0;
  int incarnation = 0;
  std::string pod_name;
  std::string address;
  std::string node_name;
  int processes = 1;
  int first_rank = 0;                                     // see number_ranks
  contract::RoleKind kind = contract::RoleKind::kWorker;  // of the role
  std::uint16_t exec_port =
      0;  // where its launcher starts processes for an MPI launcher; 0: nowhere
  // In the network of its node, the first of the pod's ports there (contract/host_ports.hpp); 0: it
  // has an address of its own.
  std::uint16_t port_base = 0;
  // What programs call the pod by: its address, or a name that the pod after it has too. See
  // name_hosts; launchers do not send it.
  std::string host = {};
};

struct RankTable {
  int attempt = 0;
  int world_size = 0;          // ranks that train
  std::string master_address;  // of rank 0
  std::string master_host;     // its Node::host
  std::uint16_t master_port = 0;
  // On one machine: the first of a range of free ports, one for each process by its number. 0: each
  // pod has an address of its own.
  std::uint16_t port_base = 0;
  std::vector<Node> nodes;  // by node rank
};

/// In a gang of more than kLargestDirectGang pods, rank 0's launcher sends the rank table to the
/// first kTableChildren pods only, and each pod passes it on to as many. N copies of N rows from
/// one pod would grow as N².
inline constexpr int kLargestDirectGang = 256;
inline constexpr int kTableChildren = 32;

/// The pod that passes the rank table to this one; 0: rank 0's launcher sends it.
constexpr int table_parent(int node_rank, int node_count) {
  return node_count <= kLargestDirectGang || node_rank == 0 ? 0 : (node_rank - 1) / kTableChildren;
}

/// Whether the pod passes the rank table on by a listener of its own. Rank 0's launcher sends it
/// through the rendezvous.
constexpr bool passes_table_on(int node_rank, int node_count) {
  return node_count > kLargestDirectGang && node_rank > 0 &&
         static_cast<long long>(node_rank) * kTableChildren + 1 < node_count;
}

/// Gives every process a number, by kind of role, then by node rank: the ranks of training are
/// 0 to world size - 1, servers and other helpers follow. Returns the world size.
int number_ranks(std::vector<Node>& nodes);

/// Sets each Node::host. A pod that is replaced while the others go on is called by its name in
/// `subdomain` (contract::host_name), since the others do not hear of the new address. Other pods
/// are called by their addresses, and so are all if `subdomain` is empty.
void name_hosts(RankTable& table, const std::string& job, const std::string& subdomain);

/// All processes of the gang, those that do not train included.
int processes_in(const RankTable& table);

/// Fills in ranks, world size and master address from `nodes`, which are ordered by node rank.
RankTable make_rank_table(int attempt, std::uint16_t master_port, std::vector<Node> nodes);

}  // namespace paceline::rendezvous
