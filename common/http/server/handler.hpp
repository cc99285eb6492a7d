// SPDX-License-Identifier: Apache-2.0
// What a server is given: its options, and the handler that answers requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/transport.hpp"

namespace paceline::http {

/// How a handler answers: it calls `respond` once; or `begin_stream`, then `write` until that
/// returns false; or `abort`, which closes the connection without an answer.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void respond(Response response) = 0;
  virtual bool begin_stream(int status, const std::vector<Header>& headers) = 0;
  virtual bool write(std::string_view chunk) = 0;
  virtual void abort() = 0;
  /// Requested when the server stops.
  virtual std::stop_token stop() const = 0;
};

using ServerHandler = std::function<void(const Request&, ResponseWriter&)>;

class ConnectionFactory;

struct ServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: the kernel chooses; Server::port returns it
  std::size_t max_connections = 64;
  // With max_connections, bounds the memory that unauthenticated clients can occupy.
  std::size_t max_body_bytes = 64 * 1024;
  std::chrono::milliseconds idle_timeout{60000};
  std::shared_ptr<ConnectionFactory> connections{};  // null: plain TCP; see tls.hpp
};

}  // namespace paceline::http
