// SPDX-License-Identifier: Apache-2.0
// One connection, plain or TLS, driven by the thread that uses it: asynchronous operations on an
// io_context of its own, so that time-outs and cancellation work, run to completion one after the
// other. Internal to this folder. One thread at a time; after a failure it is thrown away.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>

#include <boost/asio/ssl/context.hpp>

#include "common/http/beast/transport.hpp"
#include "common/http/transport.hpp"

namespace paceline::http {

struct Exchange {
  const Request& request;
  const ChunkHandler* on_chunk = nullptr;  // stream when set
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

class Connection {
 public:
  virtual ~Connection() = default;
  virtual Status connect(const Exchange& exchange) = 0;
  virtual Result<Response> run(const Exchange& exchange) = 0;
  /// The peer has neither closed nor said anything unasked.
  virtual bool still_good() = 0;
  /// After `run`: may serve another request.
  bool reusable() const { return reusable_; }
  /// After a failed `run`: not a byte of an answer had come.
  bool silent() const { return silent_; }

 protected:
  bool reusable_ = false;
  bool silent_ = true;
};

std::unique_ptr<Connection> make_connection(const Endpoint& endpoint, const BeastOptions& options,
                                            std::shared_ptr<boost::asio::ssl::context> tls);

}  // namespace paceline::http
