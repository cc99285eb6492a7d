// SPDX-License-Identifier: Apache-2.0
// RingServer: the SOCK_SEQPACKET socket on which ranks hand over their rings (struct
// paceline_ring_offer, with the memfd in SCM_RIGHTS). A connection stays open as long as its rank
// lives. When it closes, the collector reads the ring to its end.
//
// Ownership: owns the socket, its path and the connections. Collector and client must outlive it.
// `run` is the loop of one thread. `pump` does one round without waiting and may be called from any
// other thread. Bounded: kMostConnections, one offer per connection; a peer that sends anything
// else is disconnected. Failure: `open` returns an Error that names the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"
#include "common/telemetry/collector.hpp"
#include "common/telemetry/slot/slot_client.hpp"

namespace paceline::telemetry {

class RingServer {
 public:
  /// If `agent` is given, the rings are also handed to the node's agent.
  explicit RingServer(Collector& collector, SlotClient* agent = nullptr)
      : collector_(collector), agent_(agent) {}
  RingServer(const RingServer&) = delete;
  RingServer& operator=(const RingServer&) = delete;
  ~RingServer();

  /// Binds the socket. A stale socket at the path is replaced.
  Status open(const std::filesystem::path& path);
  /// Accepts, receives and polls the collector until stopped. Wakes up for peers, and at least
  /// every 250 ms.
  void run(const std::stop_token& stop);
  /// One round without waiting. Afterwards everything that ranks published before the call is
  /// counted.
  void pump();

 private:
  struct Connection {
    UniqueFd fd;
    std::uint64_t key = 0;
  };

  void accept_all();
  /// False if the connection was closed.
  bool receive(Connection& connection);

  Collector& collector_;
  SlotClient* const agent_;
  std::mutex mutex_;
  std::filesystem::path path_;
  UniqueFd listener_;
  std::vector<Connection> connections_;
};

}  // namespace paceline::telemetry
