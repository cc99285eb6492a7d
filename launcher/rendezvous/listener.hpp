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
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/rendezvous/connection.hpp"

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

inline std::uint16_t Listener::open(const std::string& host, int backlog, Accepted accepted) {
  boost::system::error_code error;
  const boost::asio::ip::tcp::endpoint endpoint(boost::asio::ip::make_address(host, error), 0);
  if (!error) acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(backlog, error);
  const auto bound = error ? endpoint : acceptor_.local_endpoint(error);
  if (error) return 0;
  accepted_ = std::move(accepted);
  accept();
  return bound.port();
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
