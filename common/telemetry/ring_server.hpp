// SPDX-License-Identifier: Apache-2.0
// RingServer: the SOCK_SEQPACKET socket on which ranks hand over their rings (struct
// paceline_ring_offer, memfd in SCM_RIGHTS). A connection stays open as long as its rank lives; its
// end makes the collector read the ring out.
//
// Ownership: owns the socket, its path and the connections; collector and client must outlive it.
// `run` is one thread's loop; `pump` does one round without waiting and may be called from any
// other thread. Bounded: kMostConnections; one offer per connection; a peer that sends anything
// else is closed. Failure: `open` returns an Error naming the path.
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
  /// With a client the rings are handed to the node's agent as well.
  explicit RingServer(Collector& collector, SlotClient* agent = nullptr)
      : collector_(collector), agent_(agent) {}
  RingServer(const RingServer&) = delete;
  RingServer& operator=(const RingServer&) = delete;
  ~RingServer();

  /// Binds the socket; a stale one at the path is replaced.
  Status open(const std::filesystem::path& path);
  /// Accepts, receives and polls the collector until stopped; wakes for peers, and at least every
  /// 250 ms.
  void run(const std::stop_token& stop);
  /// One round of the same, without waiting: after it everything that ranks had published before
  /// the call is counted.
  void pump();

 private:
  struct Connection {
    UniqueFd fd;
    std::uint64_t key = 0;
  };

  void accept_all();
  /// False when the connection is over.
  bool receive(Connection& connection);

  Collector& collector_;
  SlotClient* const agent_;
  std::mutex mutex_;
  std::filesystem::path path_;
  UniqueFd listener_;
  std::vector<Connection> connections_;
};

}  // namespace paceline::telemetry
