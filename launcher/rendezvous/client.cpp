// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/client.hpp"

#include <chrono>

#include <boost/asio/ip/address.hpp>

namespace paceline::rendezvous {
namespace {

constexpr std::chrono::seconds kConnectTime{5};

}  // namespace

Client::Client(boost::asio::io_context& io, const std::string& host, std::uint16_t port,
               Callbacks callbacks)
    : io_(io),
      server_(boost::asio::ip::make_address(host), port),
      callbacks_(std::move(callbacks)),
      timer_(io) {}

void Client::connect() {
  auto socket = std::make_shared<boost::asio::ip::tcp::socket>(io_);
  connecting_ = socket;
  timer_.expires_after(kConnectTime);
  timer_.async_wait([socket](boost::system::error_code stopped) {
    boost::system::error_code ignored;
    if (!stopped) socket->close(ignored);  // makes the connect below end with an error
  });
  socket->async_connect(server_, [this, socket](boost::system::error_code error) {
    if (connecting_ != socket) return;
    connecting_.reset();
    timer_.cancel();
    if (error) {
      callbacks_.lost(
          "connecting to " + server_.address().to_string() + ":" + std::to_string(server_.port()) +
          ": " + (error == boost::asio::error::operation_aborted ? "no answer" : error.message()));
      return;
    }
    auto connection = std::make_shared<Connection>(std::move(*socket), kServerLimit);
    connection_ = connection;
    const auto lost = [this, raw = connection.get()](const std::string& why) {
      if (connection_.get() != raw) return;
      connection_.reset();
      callbacks_.lost(why);
    };
    connection->start({[this, raw = connection.get(), lost](const std::string& payload) {
                         if (connection_.get() != raw) return;
                         const auto message = parse_message(payload);
                         if (message) return callbacks_.message(*message, payload);
                         raw->abort();
                         lost(message.error().message);
                       },
                       lost,
                       [this, raw = connection.get()] {
                         if (connection_.get() == raw && callbacks_.progress) callbacks_.progress();
                       }});
    callbacks_.connected();
  });
}

void Client::send(const Message& message) {
  if (connection_) connection_->send(to_json(message));
}

void Client::drop() {
  connecting_.reset();
  timer_.cancel();
  if (const auto connection = std::exchange(connection_, nullptr)) connection->close();
}

}  // namespace paceline::rendezvous
