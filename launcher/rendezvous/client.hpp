// SPDX-License-Identifier: Apache-2.0
// Client: the socket of a Member. It connects to the launcher of node rank 0, sends and receives
// messages, and reports when the connection is lost. Launcher owns one.
//
// Ownership: owns its connection; borrows io_context. One thread. No callback is called from within
// a call. Failure: `lost` with the reason.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/rendezvous/connection.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::rendezvous {

class Client {
 public:
  struct Callbacks {
    std::function<void()> connected;
    std::function<void(const std::string& why)> lost;
    std::function<void(const Message&, const std::string& payload)> message;
    /// Bytes passed, although no whole message did.
    std::function<void()> progress = {};
  };

  Client(boost::asio::io_context& io, const std::string& host, std::uint16_t port,
         Callbacks callbacks);

  void connect();
  void send(const Message& message);
  /// Closes after everything sent is written. `lost` is not called.
  void drop();

 private:
  boost::asio::io_context& io_;
  boost::asio::ip::tcp::endpoint server_;
  Callbacks callbacks_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<boost::asio::ip::tcp::socket> connecting_;
  std::shared_ptr<Connection> connection_;
};

}  // namespace paceline::rendezvous
