// SPDX-License-Identifier: Apache-2.0
// One accepted connection of the server, over TCP or TLS. Internal to this folder, because it
// includes Beast's headers.
//
// Ownership: shared between the accepting thread and the connection's own thread; only the latter
// uses it. See server.hpp for the limits.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "common/http/server/handler.hpp"

namespace paceline::http {

namespace net = boost::asio;
namespace beast = boost::beast;

inline constexpr std::chrono::seconds kHandshakeTimeout{10};
inline constexpr std::chrono::seconds kWriteTimeout{30};

class ServerConnection {
 public:
  virtual ~ServerConnection() = default;
  virtual net::io_context& context() = 0;
  virtual void adopt(net::ip::tcp::socket socket) = 0;
  virtual void serve(const std::stop_token& stop) = 0;
};

/// Makes a connection before its socket exists, because the socket is created on the connection's
/// io_context.
class ConnectionFactory {
 public:
  virtual ~ConnectionFactory() = default;
  virtual std::shared_ptr<ServerConnection> make(const ServerOptions& options,
                                                 const ServerHandler& handler) = 0;
};

struct PlainLayer {
  using Stream = beast::tcp_stream;
  static void adopt(std::optional<Stream>& stream, net::ip::tcp::socket socket) {
    stream.emplace(std::move(socket));
  }
  template <typename Await>
  static beast::error_code begin(Stream& /*stream*/, const Await& /*await*/) {
    return {};
  }
};

/// `Layer` makes the stream from a socket and performs its handshake.
template <typename Layer>
class Session final : public ServerConnection, public ResponseWriter {
  using Ec = beast::error_code;

 public:
  Session(const ServerOptions& options, const ServerHandler& handler, Layer layer = {})
      : options_(options), handler_(handler), layer_(std::move(layer)) {}

  net::io_context& context() override { return context_; }
  void adopt(net::ip::tcp::socket socket) override { layer_.adopt(stream_, std::move(socket)); }

  void serve(const std::stop_token& stop) override {
    stop_ = stop;
    const std::stop_callback cancel(stop,
                                    [this] { net::post(context_, [this] { tcp().close(); }); });
    Ec ignored;
    tcp().socket().set_option(net::ip::tcp::no_delay(true), ignored);
    tcp().expires_after(kHandshakeTimeout);
    if (layer_.begin(*stream_, [&](auto start) { return await(std::move(start)); }))
      return tcp().close();
    beast::flat_buffer buffer;
    keep_ = true;
    while (keep_ && !stop.stop_requested()) {
      beast::http::request_parser<beast::http::string_body> parser;
      parser.header_limit(32 * 1024);
      parser.body_limit(options_.max_body_bytes);
      tcp().expires_after(options_.idle_timeout);
      const Ec error = await([&](auto done) {
        beast::http::async_read(*stream_, buffer, parser,
                                [done](Ec ec, std::size_t) mutable { done(ec); });
      });
      if (error) {
        refuse(error);
        break;
      }
      auto& message = parser.get();
      Request request;
      request.method = std::string(message.method_string());
      request.target = std::string(message.target());
      for (const auto& field : message)
        request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
      request.body = std::move(message.body());
      keep_ = message.keep_alive();
      state_ = State::kWaiting;
      handler_(request, *this);
      finish();
    }
    tcp().close();
  }

  void respond(Response response) override {
    if (state_ != State::kWaiting) return;
    state_ = State::kDone;
    beast::http::response<beast::http::string_body> message(
        static_cast<beast::http::status>(response.status), 11);
    for (const Header& header : response.headers) message.set(header.name, header.value);
    message.body() = std::move(response.body);
    message.keep_alive(keep_);
    message.prepare_payload();
    tcp().expires_after(kWriteTimeout);
    const Ec error = await([&](auto done) {
      beast::http::async_write(*stream_, message, [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) keep_ = false;
  }

  bool begin_stream(int status, const std::vector<Header>& headers) override {
    if (state_ != State::kWaiting) return false;
    state_ = State::kStreaming;
    beast::http::response<beast::http::empty_body> message(static_cast<beast::http::status>(status),
                                                           11);
    for (const Header& header : headers) message.set(header.name, header.value);
    message.chunked(true);
    beast::http::response_serializer<beast::http::empty_body> serializer(message);
    tcp().expires_after(kWriteTimeout);
    const Ec error = await([&](auto done) {
      beast::http::async_write_header(*stream_, serializer,
                                      [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) abort();
    return !error;
  }

  bool write(std::string_view chunk) override {
    if (state_ != State::kStreaming || stop_.stop_requested()) return false;
    if (chunk.empty()) return peer_is_there();  // an empty chunk would end the body
    tcp().expires_after(kWriteTimeout);
    const Ec error = await([&](auto done) {
      net::async_write(*stream_,
                       beast::http::make_chunk(net::const_buffer(chunk.data(), chunk.size())),
                       [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) abort();
    return !error;
  }

  void abort() override {
    state_ = State::kDone;
    keep_ = false;
    tcp().close();
  }

  std::stop_token stop() const override { return stop_; }

 private:
  enum class State { kWaiting, kStreaming, kDone };

  beast::tcp_stream& tcp() { return beast::get_lowest_layer(*stream_); }

  template <typename Start>
  Ec await(Start start) {
    std::optional<Ec> result;
    start([&result](Ec ec) { result = ec; });
    context_.restart();
    context_.run();
    return result.value_or(net::error::operation_aborted);
  }

  bool peer_is_there() {
    char byte = 0;
    const auto got = ::recv(tcp().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EAGAIN)) return true;
    abort();
    return false;
  }

  void finish() {
    if (state_ == State::kWaiting) {
      respond({500, {}, "the handler gave no answer\n"});
    } else if (state_ == State::kStreaming) {
      state_ = State::kDone;
      tcp().expires_after(kWriteTimeout);
      if (await([&](auto done) {
            net::async_write(*stream_, beast::http::make_chunk_last(),
                             [done](Ec ec, std::size_t) mutable { done(ec); });
          })) {
        keep_ = false;
      }
    }
  }

  /// Answers a request that could not be read, if HTTP has a status for the problem.
  void refuse(const Ec& error) {
    int status = 0;
    if (error == beast::http::error::body_limit)
      status = 413;
    else if (error == beast::http::error::header_limit)
      status = 431;
    else if (error == beast::http::error::end_of_stream || error == beast::error::timeout ||
             error == beast::http::error::partial_message)
      return;
    else if (error.category() ==
             beast::http::make_error_code(beast::http::error::bad_method).category())
      status = 400;
    if (status == 0) return;
    state_ = State::kWaiting;
    keep_ = false;
    respond({status, {{"Content-Type", "text/plain"}}, error.message() + "\n"});
  }

  const ServerOptions& options_;
  const ServerHandler& handler_;
  net::io_context context_{1};
  Layer layer_;
  std::optional<typename Layer::Stream> stream_;
  std::stop_token stop_;
  State state_ = State::kDone;
  bool keep_ = true;
};

}  // namespace paceline::http
