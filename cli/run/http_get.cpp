// SPDX-License-Identifier: Apache-2.0
#include "cli/run/http_get.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace paceline::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::chrono::seconds kTime{3};
constexpr std::uint64_t kMostBody = 16 * 1024 * 1024;

struct Exchange : std::enable_shared_from_this<Exchange> {
  Exchange(asio::io_context& io, std::function<void(std::optional<std::string>)> callback)
      : stream(io), done(std::move(callback)) {
    parser.body_limit(kMostBody);
  }

  void begin(std::uint16_t port) {
    stream.expires_after(kTime);
    stream.async_connect(
        asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), port),
        [self = shared_from_this()](beast::error_code error) {
          if (error) return self->done(std::nullopt);
          http::async_write(
              self->stream, self->request, [self](beast::error_code failed, std::size_t) {
                if (failed) return self->done(std::nullopt);
                http::async_read(self->stream, self->buffer, self->parser,
                                 [self](beast::error_code broken, std::size_t) {
                                   if (broken || self->parser.get().result() != http::status::ok)
                                     return self->done(std::nullopt);
                                   self->done(std::move(self->parser.get().body()));
                                 });
              });
        });
  }

  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  http::request<http::empty_body> request;
  http::response_parser<http::string_body> parser;
  std::function<void(std::optional<std::string>)> done;
};

}  // namespace

void http_get(asio::io_context& io, std::uint16_t port, const std::string& target,
              const std::string& authorization,
              std::function<void(std::optional<std::string>)> done) {
  const auto exchange = std::make_shared<Exchange>(io, std::move(done));
  exchange->request.method(http::verb::get);
  exchange->request.version(11);
  exchange->request.target(target);
  exchange->request.set(http::field::host, "localhost");
  exchange->request.keep_alive(false);
  if (!authorization.empty()) exchange->request.set(http::field::authorization, authorization);
  exchange->begin(port);
}

}  // namespace paceline::cli
