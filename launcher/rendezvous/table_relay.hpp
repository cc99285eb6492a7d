// SPDX-License-Identifier: Apache-2.0
// TableRelay: passes the rank table from launcher to launcher in a gang that is too large for rank
// 0 to send it to everybody (rank_table.hpp). A launcher fetches the table from its parent, and
// serves it to its children on a port of its own. The table stays the encoded message, so passing
// it on costs no work.
//
// Ownership: owns its sockets; borrows io_context. One thread. A child shows the job's token. A
// child that asks early waits until this launcher has the table, and is told so every 2 s. Failure:
// `fetch` reports an Error at the latest when no byte came for kTableTimeout; the caller then asks
// rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/clock.hpp"
#include "common/net/address.hpp"
#include "launcher/rendezvous/connection.hpp"
#include "launcher/rendezvous/listener.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::rendezvous {

inline constexpr std::chrono::seconds kTableTimeout{10};

/// The table of a payload that was fetched.
Result<Table> parse_table(const Result<std::string>& payload);

class TableRelay {
 public:
  /// Called with the encoded Table message.
  using Fetched = std::function<void(Result<std::string>)>;

  TableRelay(boost::asio::io_context& io, std::string token, std::string job_uid,
             std::chrono::milliseconds limit = kTableTimeout);

  /// Listens on a free port of this address, and returns it; 0 if the address cannot be bound.
  std::uint16_t open(const std::string& host);
  /// Keeps the encoded table of this attempt for children, and sends it to those that wait.
  void offer(int attempt, std::string_view payload);
  /// Asks another launcher for the table of an attempt. An earlier fetch that still runs ends
  /// without a report.
  void fetch(int attempt, const net::Address& from, Fetched done);
  /// Tells children that wait, and closes those that do not take the table. Call a few times a
  /// second.
  void tick(SteadyTime now);
  void close();

 private:
  struct Child {
    std::shared_ptr<Connection> connection;
    int attempt = -1;  // that it asks for; -1: it has not asked yet
    SteadyTime since;
  };
  struct Fetch;

  void on_request(std::uint64_t id, const std::string& payload);
  void serve(Child& child);

  boost::asio::io_context& io_;
  const std::string token_;
  const std::string job_uid_;
  const std::chrono::milliseconds limit_;
  Listener listener_;
  std::map<std::uint64_t, Child> children_;
  std::uint64_t next_ = 0;
  SteadyTime now_{};
  SteadyTime last_heartbeat_{};
  int attempt_ = -1;
  SharedFrame table_;
  std::shared_ptr<Fetch> fetch_;
};

}  // namespace paceline::rendezvous
