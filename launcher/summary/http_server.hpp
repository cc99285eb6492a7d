// SPDX-License-Identifier: Apache-2.0
// HttpServer: serves GET for a few documents, to Prometheus and to the operator. Built from
// header-only parts, so that it links into the static launcher. `paceline run` uses it for
// --metrics-listen.
//
// Ownership: borrows io_context; the handler is called on its thread. Bounded: 64 connections, 8
// KiB of headers, no bodies, 10 s per request. Failure: `open` names the address that could not be
// bound. A bad request gets 400, or its connection is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/error.hpp"

namespace boost::asio {
class io_context;
}

namespace paceline::summary {

struct HttpAnswer {
  int status = 404;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = "not found\n";
};

class HttpServer {
 public:
  /// `authorization` is the header as sent; empty if absent.
  using Handler =
      std::function<HttpAnswer(const std::string& path, const std::string& authorization)>;

  HttpServer(boost::asio::io_context& io, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  Status open(const std::string& host, std::uint16_t port);
  void close();

 private:
  class Acceptor;
  std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace paceline::summary
