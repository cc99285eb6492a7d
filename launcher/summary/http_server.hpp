// SPDX-License-Identifier: Apache-2.0
// HttpServer: serves a few documents to Prometheus and to the operator, and Horovod's store to
// ranks. Built from header-only parts, so that it links into the static launcher. `paceline run`
// uses it for --metrics-listen.
//
// Ownership: borrows io_context; the handler is called on its thread. Bounded: HttpLimits, 8 KiB of
// headers, 10 s per request. Failure: `open` names the address that could not be bound. A bad
// request gets 400, or its connection is closed.
#pragma once

#include <cstddef>
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

struct HttpRequest {
  std::string method;         // GET also for HEAD, whose answer is sent without its body
  std::string path;           // without the query
  std::string authorization;  // the header as sent; empty if absent
  std::string body;
};

struct HttpLimits {
  std::size_t connections = 64;  // more of them are closed at once
  std::uint64_t body = 0;        // bytes of a request's body
};

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(HttpRequest request)>;

  HttpServer(boost::asio::io_context& io, Handler handler, HttpLimits limits = {});
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
