// SPDX-License-Identifier: Apache-2.0
// Listener: accepts TCP connections on a free port of one address. TableRelay and ExecServer use
// it.
//
// Borrows io_context and lives as long as it runs. One thread. Failure: `open` returns 0. A failed
// accept, such as one for want of a descriptor, is tried again after kAcceptPause.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

namespace paceline::rendezvous {

class Listener {
 public:
  using Accepted = std::function<void(boost::asio::ip::tcp::socket)>;

  explicit Listener(boost::asio::io_context& io) : acceptor_(io), pause_(io) {}

  /// Listens on a free port of this address, and returns it; 0 if the address cannot be bound.
  std::uint16_t open(const std::string& host, int backlog, Accepted accepted);
  void close();

 private:
  void accept();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  Accepted accepted_;
};

}  // namespace paceline::rendezvous
