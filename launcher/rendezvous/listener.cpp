// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/listener.hpp"

#include <utility>

#include <boost/asio/ip/address.hpp>

#include "launcher/rendezvous/connection.hpp"

namespace paceline::rendezvous {

using boost::asio::ip::tcp;

std::uint16_t Listener::open(const std::string& host, int backlog, Accepted accepted) {
  boost::system::error_code error;
  const tcp::endpoint endpoint(boost::asio::ip::make_address(host, error), 0);
  if (!error) acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(backlog, error);
  const auto bound = error ? endpoint : acceptor_.local_endpoint(error);
  if (error) return 0;
  accepted_ = std::move(accepted);
  accept();
  return bound.port();
}

void Listener::accept() {
  acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
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

void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

}  // namespace paceline::rendezvous
