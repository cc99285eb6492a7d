// SPDX-License-Identifier: Apache-2.0
// Server: the sockets of a Gang, on node rank 0. A connection has 5 s to send Hello and may hold 16
// KiB until then. There are at most twice as many connections as members, plus 64.
//
// Ownership: owns the gang and the connections; borrows io_context, clock and log. One thread.
// Failure: `open` names the address that could not be bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/connection.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/listener.hpp"

namespace paceline::rendezvous {

class Server {
 public:
  Server(boost::asio::io_context& io, const Clock& clock, GangConfig config,
         std::function<void(const std::string&)> log);

  Status open(const std::string& host, std::uint16_t port);
  /// Call a few times a second.
  void tick();
  const Gang& gang() const { return gang_; }
  void capture_stacks() { perform(gang_.capture_stacks()); }
  void open_window() { perform(gang_.open_window()); }
  void warn(const std::vector<std::string>& nodes) { perform(gang_.warn(nodes, clock_.steady())); }
  void end_hang(int rank, const std::string& text) {
    perform(gang_.end_hang(rank, text, clock_.steady()));
  }
  /// After the gang has finished: every member has disconnected.
  bool all_gone() const { return connections_.empty(); }
  void close();

 private:
  struct Peer {
    std::shared_ptr<Connection> connection;
    SteadyTime since;
    bool greeted = false;
  };

  void accept(boost::asio::ip::tcp::socket socket);
  void on_frame(ConnectionId id, const std::string& payload);
  void perform(const GangActions& actions);
  void send(ConnectionId id, const SharedFrame& frame);
  const SharedFrame& table_frame();
  void drop(ConnectionId id, bool flush);

  const Clock& clock_;
  Gang gang_;
  std::function<void(const std::string&)> log_;
  Listener listener_;
  std::map<ConnectionId, Peer> connections_;
  std::size_t most_connections_;
  ConnectionId next_ = 1;
  std::optional<SteadyTime> last_tick_;
  SharedFrame table_frame_;  // of `table_version_`
  int table_version_ = -1;
};

}  // namespace paceline::rendezvous
