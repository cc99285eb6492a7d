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

// An address where a rank listens, one for each network device that it uses.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};

// The name of a rank in messages.
inline std::string rank_name(std::uint32_t rank) { return "rank " + std::to_string(rank); }

struct PeerInfo {
  std::string host;
  std::vector<Endpoint> endpoints;
  std::string
      nonce;  // a peer that connects shows it, which proves that the peer has read the store
  // The abstract name of the socket that hands over memory; empty if there is none.
  std::string listener;
  std::string agreed;      // what must be the same on all ranks
  std::uint32_t nics = 0;  // active RDMA ports
  std::string no_rdma;     // why there are none
  std::string refusal;     // why this rank does not take part; if set, the other fields are ignored
};

struct Listeners {
  std::vector<base::Fd> tcp;  // one for each endpoint
  base::Fd memory;
};

struct Store {
  paceline_comm_store functions;
  std::string name;
};

// Opens the TCP sockets and, where the system has it, the socket for memory. Fills in the rest of
// the peer info. An empty `info.host` is detected. `addresses` are numeric and separated by commas;
// if empty, they are detected.
std::expected<Listeners, Error> open_listeners(PeerInfo& info, const std::string& addresses);
// Cuts every rank's endpoints to the smallest number that any rank has. The i-th endpoint of one
// rank connects to the i-th of another. If a rank has several, an address that another host also
// has is dropped: it is a local bridge, such as a container engine's. All ranks get the same
// result.
void pair_endpoints(std::vector<PeerInfo>& peers);
// Publishes one small text of a rank. `key` is the last part of its key.
std::expected<void, Error> tell(const Store& store, const std::string& key,
                                const std::string& text);
std::expected<std::string, Error> read_key(const Store& store, const std::string& key,
                                           std::uint32_t rank, Clock::time_point deadline);
// Publishes that this rank does not take part, so that the others do not wait for its peer info. An
// error of the store is ignored.
void refuse(const Store& store, std::uint32_t rank, const std::string& why);
// Publishes this rank's peer info and reads those of all ranks.
std::expected<std::vector<PeerInfo>, Error> exchange(const Store& store, std::uint32_t rank,
                                                     std::uint32_t ranks, const PeerInfo& info,
                                                     Clock::time_point deadline);

}  // namespace paceline::comm
