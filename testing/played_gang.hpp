// SPDX-License-Identifier: Apache-2.0
// PlayedGang: the launchers of many pods in one process, without ranks, for tests and benchmarks of
// rank 0's launcher. Each member has a connection and, where it passes the rank table on, a
// listener of its own: a loopback address for each. Members hold the table as bytes and do not
// parse it, so that one process can be thousands of them.
//
// One thread: `run` returns when every member has ended. Failure: see Result.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/net/address.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::testing {

struct PlayedSettings {
  net::Address server;
  std::string token = "secret";
  std::string job_uid = "uid";
  int node_count = 2;
  int first = 1;  // node ranks first, …, last - 1 are played here
  int last = 2;
  int protocol = rendezvous::kProtocol;  // 1: as before the table was passed on, for comparisons
  /// Time from the last member's table until all are done.
  std::chrono::milliseconds hold{0};
  bool passes_table_on = true;  // false: the ports that members name are closed
};

struct PlayedResult {
  int tables = 0;            // members that got the rank table
  int from_server = 0;       // of these, over the rendezvous itself
  int lost = 0;              // connections that ended before the job
  int succeeded = 0;         // members that were told that the job succeeded
  double table_seconds = 0;  // from the first connection to the last table
};

class PlayedGang {
 public:
  explicit PlayedGang(PlayedSettings settings);
  ~PlayedGang();
  PlayedGang(const PlayedGang&) = delete;
  PlayedGang& operator=(const PlayedGang&) = delete;

  /// Gives up after `limit`.
  PlayedResult run(std::chrono::seconds limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A pod's row in the table. Addresses and node names follow no pattern, as in a large cluster.
rendezvous::Node played_node(int node_rank);

}  // namespace paceline::testing
