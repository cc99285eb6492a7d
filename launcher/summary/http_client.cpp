// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/http_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace paceline::summary {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::uint64_t kMostBody = 64 * 1024 * 1024;

}  // namespace

Result<ClientAnswer> exchange(const std::vector<net::Address>& addresses,
                              const ClientRequest& request, std::chrono::milliseconds patience) {
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const net::Address& address : addresses) {
    beast::error_code wrong;
    const auto numeric = asio::ip::make_address(address.host, wrong);
    if (wrong)
      return fail(Code::kUnavailable, Origin::kHttp, "\"" + address.host + "\" is no address");
    endpoints.emplace_back(numeric, address.port);
  }
  asio::io_context io;
  beast::tcp_stream stream(io);
  beast::flat_buffer buffer;
  http::request<http::string_body> message(request.post ? http::verb::post : http::verb::get,
                                           request.path, 11);
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = request.body;
  message.prepare_payload();
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMostBody);
  beast::error_code result = asio::error::timed_out;
  stream.expires_after(patience);
  stream.async_connect(endpoints, [&](beast::error_code error, const asio::ip::tcp::endpoint&) {
    if (error) {
      result = error;
      return;
    }
    http::async_write(stream, message, [&](beast::error_code failed, std::size_t) {
      if (failed) {
        result = failed;
        return;
      }
      http::async_read(stream, buffer, parser,
                       [&](beast::error_code ended, std::size_t) { result = ended; });
    });
  });
  io.run();
  if (result) return fail(Code::kUnavailable, Origin::kHttp, result.message());
  return ClientAnswer{static_cast<int>(parser.get().result_int()), parser.get().body()};
}

}  // namespace paceline::summary
