// SPDX-License-Identifier: Apache-2.0
// One connection, plain or TLS. The thread that uses it drives it: it starts asynchronous
// operations on the connection's own io_context and runs each to completion, so that time-outs and
// cancellation work. Internal to this folder. Used by one thread at a time; discarded after a
// failure.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>

#include <boost/asio/ssl/context.hpp>

#include "common/http/beast/options.hpp"
#include "common/http/transport.hpp"

namespace paceline::http {

struct Exchange {
  const Request& request;
  const ChunkHandler* on_chunk = nullptr;  // null: a unary request
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

class Connection {
 public:
  virtual ~Connection() = default;
  virtual Status connect(const Exchange& exchange) = 0;
  virtual Result<Response> run(const Exchange& exchange) = 0;
  /// True if the peer has neither closed the connection nor sent unexpected data.
  virtual bool still_good() = 0;
  /// After `run`: true if the connection can serve another request.
  bool reusable() const { return reusable_; }
  /// After a failed `run`: true if no byte of an answer came.
  bool silent() const { return silent_; }

 protected:
  bool reusable_ = false;
  bool silent_ = true;
};

std::unique_ptr<Connection> make_connection(const Endpoint& endpoint, const BeastOptions& options,
                                            std::shared_ptr<boost::asio::ssl::context> tls);

}  // namespace paceline::http
