// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server: /metrics, /healthz, /readyz of operator and agent, and the socket side
// of the fake API server; over TLS (tls.hpp) what the agent tells only to those who may know.
//
// Ownership: the Server owns its threads (one accepts, one per connection, bounded) and joins them
// in its destructor. Thread-safe: handlers run concurrently. A request over the limits is answered
// 400/413/431; a connection over the bound is closed at once; a connection that is silent for
// `idle_timeout` is closed. Fails to start (kExhausted, kForbidden, kInvalid) when the address
// cannot be bound.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/http/transport.hpp"

namespace paceline::http {

/// How a handler answers: `respond` once, or `begin_stream` and then `write` until it returns
/// false, or `abort` (the connection is cut without an answer).
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
  std::uint16_t port = 0;  // 0: the kernel chooses, see Server::port
  std::size_t max_connections = 64;
  // times max_connections is what strangers can have held in memory
  std::size_t max_body_bytes = 64 * 1024;
  std::chrono::milliseconds idle_timeout{60000};
  std::shared_ptr<ConnectionFactory> connections{};  // absent: plain TCP; see tls.hpp
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(ServerOptions options, ServerHandler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  std::uint16_t port() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::http
