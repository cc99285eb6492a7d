// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server. The operator and the agent serve /metrics, /healthz and /readyz with it,
// `paceline run` its metrics, and the fake API server its socket. Over TLS (tls.hpp) the agent
// answers authorized clients.
//
// Ownership: the Server owns its threads (one accepts, one per connection, bounded) and joins them
// in its destructor. Thread-safe: handlers run concurrently. A request over the limits is answered
// 400, 413 or 431. A connection over the bound is closed at once, a silent one after
// `idle_timeout`. Start fails with kExhausted, kForbidden or kInvalid if the address cannot be
// bound.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/error.hpp"
#include "common/http/server/handler.hpp"

namespace paceline::http {

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
