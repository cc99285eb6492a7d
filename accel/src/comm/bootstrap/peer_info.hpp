// SPDX-License-Identifier: Apache-2.0
// What each rank tells the others through the store before they are connected: its host, its
// addresses, a nonce, and the settings that must be equal on all ranks.
//
// Ownership: values; the caller owns the listening sockets. Threads: one. Failure: a code and a
// text that names the rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "comm/failure/failure_detector.hpp"
#include "paceline/comm.h"

namespace paceline::comm {

struct Error {
  int code = 0;
  int rank = -1;
  std::string text;
};

// Where a rank listens: one for each network device that it is to use.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};

// As messages name it.
inline std::string rank_name(std::uint32_t rank) { return "rank " + std::to_string(rank); }

struct PeerInfo {
  std::string host;
  std::vector<Endpoint> endpoints;
  std::string nonce;  // shown by who connects: it has read the store
  // abstract name of the socket that memory is handed over at; empty where there is none
  std::string listener;
  std::string agreed;      // what must be the same on all ranks
  std::uint32_t nics = 0;  // active RDMA ports
  std::string no_rdma;     // why there are none
  std::string refusal;     // why this rank does not come; nothing else counts then
};

struct Listeners {
  std::vector<base::Fd> tcp;  // one for each endpoint
  base::Fd memory;
};

struct Store {
  paceline_comm_store functions;
  std::string name;
};

// Opens the sockets, the one for memory where the system has it, and fills in the peer info's rest.
// `peer info.host` may be empty: found out. `addresses`: numeric, separated by commas; none: found
// out.
std::expected<Listeners, Error> open_listeners(PeerInfo& info, const std::string& addresses);
// Leaves every peer info as many endpoints as the one that has fewest: the i-th of one rank speaks
// with the i-th of another. Of several, those that also another host has are no way to either (the
// bridge of a container engine). The same on all ranks.
void pair_endpoints(std::vector<PeerInfo>& peers);
// One small text of a rank, by the key's last words.
std::expected<void, Error> tell(const Store& store, const std::string& key,
                                const std::string& text);
std::expected<std::string, Error> read_key(const Store& store, const std::string& key,
                                           std::uint32_t rank, Clock::time_point deadline);
// For a rank that does not come: the others would wait for its peer info. What the store says to
// that is no matter any more.
void refuse(const Store& store, std::uint32_t rank, const std::string& why);
// Tells this rank's peer info and reads those of all.
std::expected<std::vector<PeerInfo>, Error> exchange(const Store& store, std::uint32_t rank,
                                                     std::uint32_t ranks, const PeerInfo& info,
                                                     Clock::time_point deadline);

}  // namespace paceline::comm
