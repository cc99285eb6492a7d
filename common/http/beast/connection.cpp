// SPDX-License-Identifier: Apache-2.0
#include "common/http/beast/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

namespace paceline::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using net::ip::tcp;
using Ec = beast::error_code;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// The body of a non-2xx answer to a stream request is an API Status, not data.
constexpr std::size_t kStreamErrorBytes = 256 * 1024;

// Not boost::none: Boost 1.74 compares Content-Length with the empty optional, and every number is
// larger than that.
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

bool is_address(const std::string& host) {
  Ec error;
  net::ip::make_address(host, error);
  return !error;
}

// A watch may rightly be silent for minutes. If the server or a load balancer vanishes without a
// word, only probes tell: after 30 s of silence one each 10 s, and the third without an answer ends
// the connection.
void keep_alive(int socket) {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

template <typename Stream>
class BeastConnection final : public Connection {
 public:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  BeastConnection(const Endpoint& endpoint, const BeastOptions& options,
                  std::shared_ptr<net::ssl::context> tls)
      : endpoint_(endpoint), options_(options), tls_(std::move(tls)) {
    if constexpr (kTls) {
      stream_.emplace(context_, *tls_);
    } else {
      stream_.emplace(context_);
    }
  }

  Status connect(const Exchange& exchange) override {
    const Cancel cancel(*this, exchange.stop);
    tcp::resolver resolver(context_);
    tcp::resolver::results_type addresses;
    Ec error = await([&](auto done) {
      const auto flags =
          is_address(endpoint_.host) ? tcp::resolver::numeric_host : tcp::resolver::flags{};
      resolver.async_resolve(endpoint_.host, endpoint_.port, flags,
                             [&, done](Ec ec, tcp::resolver::results_type found) mutable {
                               addresses = std::move(found);
                               done(ec);
                             });
    });
    if (error) return std::unexpected(describe(exchange, "resolve the name of", error));
    lowest().expires_at(exchange.deadline);
    error = await([&](auto done) {
      lowest().async_connect(addresses, [done](Ec ec, const tcp::endpoint&) mutable { done(ec); });
    });
    if (error) return std::unexpected(describe(exchange, "connect to", error));
    Ec ignored;
    lowest().socket().set_option(tcp::no_delay(true), ignored);
    keep_alive(lowest().socket().native_handle());
    if constexpr (kTls) return handshake(exchange);
    return {};
  }

  Result<Response> run(const Exchange& exchange) override {
    reusable_ = false;
    silent_ = true;
    const Cancel cancel(*this, exchange.stop);
    beast::http::request<beast::http::string_body> message;
    message.method_string(exchange.request.method);
    message.target(exchange.request.target);
    message.version(11);
    message.set(beast::http::field::host, host_header());
    for (const Header& header : exchange.request.headers) message.set(header.name, header.value);
    message.body() = exchange.request.body;
    if (!message.body().empty() || exchange.request.method != "GET") message.prepare_payload();

    lowest().expires_at(exchange.deadline);
    Ec error = await([&](auto done) {
      beast::http::async_write(*stream_, message, [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) return std::unexpected(describe(exchange, "write to", error));
    beast::http::response_parser<beast::http::empty_body> head;
    head.header_limit(64 * 1024);
    head.skip(exchange.request.method == "HEAD");
    head.body_limit(kNoLimit);  // the two ways of reading the body have their own limits below
    error = await([&](auto done) {
      beast::http::async_read_header(*stream_, buffer_, head,
                                     [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    silent_ = !head.got_some() && buffer_.size() == 0;
    if (error) return std::unexpected(describe(exchange, "read the answer of", error));

    Response response;
    response.status = static_cast<int>(head.get().result_int());
    for (const auto& field : head.get())
      response.headers.push_back({std::string(field.name_string()), std::string(field.value())});
    const bool success = response.status < 300;
    if (exchange.on_chunk != nullptr && success)
      return read_stream(exchange, head, std::move(response));
    return read_body(exchange, head, std::move(response));
  }

  bool still_good() override {
    char byte = 0;
    return buffer_.size() == 0 &&
           ::recv(lowest().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           errno == EAGAIN;
  }

 private:
  /// When stop is requested, closes the socket on the connection's own thread; the operation in
  /// flight then ends.
  struct Cancel {
    Cancel(BeastConnection& connection, const std::stop_token& stop)
        : callback(stop, [&connection] {
            net::post(connection.context_, [&connection] { connection.lowest().close(); });
          }) {}
    std::stop_callback<std::function<void()>> callback;
  };

  using Head = beast::http::response_parser<beast::http::empty_body>;

  beast::tcp_stream& lowest() { return beast::get_lowest_layer(*stream_); }

  template <typename Start>
  Ec await(Start start) {
    std::optional<Ec> result;
    start([&result](Ec ec) { result = ec; });
    context_.restart();
    context_.run();
    return result.value_or(net::error::operation_aborted);
  }

  Status handshake(const Exchange& exchange) {
    if constexpr (kTls) {
      const std::string& name =
          endpoint_.server_name.empty() ? endpoint_.host : endpoint_.server_name;
      Ec error;
      stream_->set_verify_callback(net::ssl::host_name_verification(name), error);
      if (!error && !is_address(name))
        SSL_set_tlsext_host_name(stream_->native_handle(), name.c_str());
      if (!error) {
        error = await([&](auto done) {
          stream_->async_handshake(net::ssl::stream_base::client,
                                   [done](Ec ec) mutable { done(ec); });
        });
      }
      if (error) {
        Error described = describe(exchange, "make a TLS connection to", error);
        if (const long verdict = SSL_get_verify_result(stream_->native_handle());
            verdict != X509_V_OK) {
          // Take OpenSSL's own message; the verify callback only compares names.
          described.message +=
              verdict == X509_V_ERR_UNSPECIFIED
                  ? " (its certificate is not issued for " + name + ")"
                  : std::string(" (") + X509_verify_cert_error_string(verdict) + ")";
        }
        return std::unexpected(std::move(described));
      }
    }
    return {};
  }

  Result<Response> read_body(const Exchange& exchange, Head& head, Response response) {
    beast::http::response_parser<beast::http::string_body> parser(std::move(head));
    const std::size_t limit =
        exchange.on_chunk != nullptr ? kStreamErrorBytes : options_.max_body_bytes;
    parser.body_limit(limit);
    Ec error;
    if (parser.content_length() && *parser.content_length() > limit) {
      error = beast::http::error::body_limit;
    } else {
      error = await([&](auto done) {
        beast::http::async_read(*stream_, buffer_, parser,
                                [done](Ec ec, std::size_t) mutable { done(ec); });
      });
    }
    if (error == beast::http::error::body_limit) {
      return fail(Code::kExhausted, Origin::kHttp,
                  exchange.request.method + " " + exchange.request.target.substr(0, 256) +
                      ": the answer is larger than " + std::to_string(limit) + " bytes");
    }
    if (error) return std::unexpected(describe(exchange, "read the answer of", error));
    response.body = std::move(parser.get().body());
    reusable_ = parser.keep_alive() && !exchange.stop.stop_requested();
    return response;
  }

  Result<Response> read_stream(const Exchange& exchange, Head& head, Response response) {
    beast::http::response_parser<beast::http::buffer_body> parser(std::move(head));
    parser.body_limit(kNoLimit);
    std::vector<char> chunk(options_.read_buffer_bytes);
    while (!parser.is_done()) {
      parser.get().body().data = chunk.data();
      parser.get().body().size = chunk.size();
      lowest().expires_after(exchange.request.timeout);
      // read_some hands data on at once; async_read would wait until the chunk is full.
      Ec error = await([&](auto done) {
        beast::http::async_read_some(*stream_, buffer_, parser,
                                     [done](Ec ec, std::size_t) mutable { done(ec); });
      });
      if (error == beast::http::error::need_buffer) error = {};
      const std::size_t got = chunk.size() - parser.get().body().size;
      if (got > 0 && !(*exchange.on_chunk)(std::string_view(chunk.data(), got))) return response;
      if (exchange.stop.stop_requested()) return fail(Code::kCancelled, Origin::kHttp, "stopped");
      if (error) return std::unexpected(describe(exchange, "read the stream of", error));
    }
    reusable_ = parser.keep_alive();
    return response;
  }

  std::string host_header() const {
    std::string host =
        endpoint_.host.find(':') == std::string::npos ? endpoint_.host : "[" + endpoint_.host + "]";
    return host + ":" + endpoint_.port;
  }

  Error describe(const Exchange& exchange, const char* what, const Ec& error) const {
    Error described{Code::kUnavailable, Origin::kHttp, {}, true};
    const std::string place = (kTls ? "https://" : "http://") + host_header();
    described.message = exchange.request.method + " " + exchange.request.target.substr(0, 256) +
                        ": cannot " + what + " " + place + ": ";
    if (exchange.stop.stop_requested()) {
      described.code = Code::kCancelled;
      described.retry = false;
      described.message += "stopped";
    } else if (error == beast::error::timeout) {
      described.code = Code::kTimeout;
      described.message +=
          "no answer within " + std::to_string(exchange.request.timeout.count()) + " ms";
    } else if (error.category() == net::error::get_ssl_category()) {
      // waiting does not mend a wrong certificate, but a rotation may
      described.code = Code::kUnauthorized;
      described.message += error.message();
    } else {
      described.message += error.message();
    }
    return described;
  }

  const Endpoint& endpoint_;
  const BeastOptions& options_;
  std::shared_ptr<net::ssl::context> tls_;
  net::io_context context_{1};
  std::optional<Stream> stream_;
  beast::flat_buffer buffer_;
};

}  // namespace

std::unique_ptr<Connection> make_connection(const Endpoint& endpoint, const BeastOptions& options,
                                            std::shared_ptr<net::ssl::context> tls) {
  if (tls) return std::make_unique<BeastConnection<TlsStream>>(endpoint, options, std::move(tls));
  return std::make_unique<BeastConnection<beast::tcp_stream>>(endpoint, options, nullptr);
}

}  // namespace paceline::http
