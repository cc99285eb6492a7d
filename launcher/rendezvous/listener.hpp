// SPDX-License-Identifier: Apache-2.0
// Listener: accepts TCP connections at one address. Server, TableRelay and ExecServer use it.
//
// Borrows io_context and lives as long as it runs. One thread. Failure: `open` returns the error of
// net::listen_on. A failed accept, such as one for want of a descriptor, is tried again after
// kAcceptPause.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/net/listener.hpp"
#include "launcher/rendezvous/connection.hpp"

namespace paceline::rendezvous {

class Listener {
 public:
  using Accepted = std::function<void(boost::asio::ip::tcp::socket)>;

  explicit Listener(boost::asio::io_context& io) : acceptor_(io), pause_(io) {}

  /// Listens at this address, port 0 for a free one, and returns the port.
  Result<std::uint16_t> open(const net::Address& address, int backlog, Accepted accepted);
  void close();

 private:
  void accept();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  Accepted accepted_;
};

inline Result<std::uint16_t> Listener::open(const net::Address& address, int backlog,
                                            Accepted accepted) {
  auto listener = net::listen_on(address, backlog);
  if (!listener) return std::unexpected(listener.error());
  using boost::asio::ip::tcp;
  acceptor_.assign(listener->v6 ? tcp::v6() : tcp::v4(), listener->socket.release());
  accepted_ = std::move(accepted);
  accept();
  return listener->port;
}

inline void Listener::accept() {
  acceptor_.async_accept(
      [this](boost::system::error_code error, boost::asio::ip::tcp::socket socket) {
        if (error == boost::asio::error::operation_aborted) return;
        if (error) {
          // Out of descriptors or memory: pause, or the loop would use a whole CPU.
          pause_.expires_after(kAcceptPause);
          pause_.async_wait([this](boost::system::error_code stopped) {
            if (!stopped) accept();
          });
          return;
        }
        accepted_(std::move(socket));
        accept();
      });
}

inline void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

}  // namespace paceline::rendezvous
