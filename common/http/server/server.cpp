// SPDX-License-Identifier: Apache-2.0
#include "common/http/server/server.hpp"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace paceline::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using net::ip::tcp;
using Ec = beast::error_code;

constexpr std::chrono::seconds kWriteTimeout{30};

/// One accepted connection, driven by its own thread.
class Session final : public ResponseWriter {
 public:
  Session(const ServerOptions& options, const ServerHandler& handler) : options_(options), handler_(handler) {}

  net::io_context& context() { return context_; }
  void adopt(tcp::socket socket) { stream_.emplace(std::move(socket)); }

  void serve(const std::stop_token& stop) {
    stop_ = stop;
    const std::stop_callback cancel(stop, [this] { net::post(context_, [this] { stream_->close(); }); });
    Ec ignored;
    stream_->socket().set_option(tcp::no_delay(true), ignored);
    beast::flat_buffer buffer;
    keep_ = true;
    while (keep_ && !stop.stop_requested()) {
      beast::http::request_parser<beast::http::string_body> parser;
      parser.header_limit(32 * 1024);
      parser.body_limit(options_.max_body_bytes);
      stream_->expires_after(options_.idle_timeout);
      const Ec error = await([&](auto done) {
        beast::http::async_read(*stream_, buffer, parser, [done](Ec ec, std::size_t) mutable { done(ec); });
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
    stream_->close();
  }

  void respond(Response response) override {
    if (state_ != State::kWaiting) return;
    state_ = State::kDone;
    beast::http::response<beast::http::string_body> message(static_cast<beast::http::status>(response.status), 11);
    for (const Header& header : response.headers) message.set(header.name, header.value);
    message.body() = std::move(response.body);
    message.keep_alive(keep_);
    message.prepare_payload();
    stream_->expires_after(kWriteTimeout);
    const Ec error = await([&](auto done) {
      beast::http::async_write(*stream_, message, [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) keep_ = false;
  }

  bool begin_stream(int status, const std::vector<Header>& headers) override {
    if (state_ != State::kWaiting) return false;
    state_ = State::kStreaming;
    beast::http::response<beast::http::empty_body> message(static_cast<beast::http::status>(status), 11);
    for (const Header& header : headers) message.set(header.name, header.value);
    message.chunked(true);
    beast::http::response_serializer<beast::http::empty_body> serializer(message);
    stream_->expires_after(kWriteTimeout);
    const Ec error = await([&](auto done) {
      beast::http::async_write_header(*stream_, serializer, [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) abort();
    return !error;
  }

  bool write(std::string_view chunk) override {
    if (state_ != State::kStreaming || stop_.stop_requested()) return false;
    if (chunk.empty()) return peer_is_there();  // an empty chunk would end the body
    stream_->expires_after(kWriteTimeout);
    const Ec error = await([&](auto done) {
      net::async_write(*stream_, beast::http::make_chunk(net::const_buffer(chunk.data(), chunk.size())),
                       [done](Ec ec, std::size_t) mutable { done(ec); });
    });
    if (error) abort();
    return !error;
  }

  void abort() override {
    state_ = State::kDone;
    keep_ = false;
    stream_->close();
  }

  std::stop_token stop() const override { return stop_; }

 private:
  enum class State { kWaiting, kStreaming, kDone };

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
    const auto got = ::recv(stream_->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EAGAIN)) return true;
    abort();
    return false;
  }

  void finish() {
    if (state_ == State::kWaiting) {
      respond({500, {}, "the handler gave no answer\n"});
    } else if (state_ == State::kStreaming) {
      state_ = State::kDone;
      stream_->expires_after(kWriteTimeout);
      if (await([&](auto done) {
            net::async_write(*stream_, beast::http::make_chunk_last(),
                             [done](Ec ec, std::size_t) mutable { done(ec); });
          })) {
        keep_ = false;
      }
    }
  }

  /// A request that could not be read gets an answer where HTTP has one.
  void refuse(const Ec& error) {
    int status = 0;
    if (error == beast::http::error::body_limit)
      status = 413;
    else if (error == beast::http::error::header_limit)
      status = 431;
    else if (error == beast::http::error::end_of_stream || error == beast::error::timeout ||
             error == beast::http::error::partial_message)
      return;
    else if (error.category() == beast::http::make_error_code(beast::http::error::bad_method).category())
      status = 400;
    if (status == 0) return;
    state_ = State::kWaiting;
    keep_ = false;
    respond({status, {{"Content-Type", "text/plain"}}, error.message() + "\n"});
  }

  const ServerOptions& options_;
  const ServerHandler& handler_;
  net::io_context context_{1};
  std::optional<beast::tcp_stream> stream_;
  std::stop_token stop_;
  State state_ = State::kDone;
  bool keep_ = true;
};

}  // namespace

struct Server::Impl {
  Impl(ServerOptions server_options, ServerHandler server_handler)
      : options(std::move(server_options)), handler(std::move(server_handler)) {}

  ~Impl() {
    stopping.request_stop();
    net::post(context, [this] {
      Ec ignored;
      acceptor.close(ignored);
    });
    if (accepting.joinable()) accepting.join();
    sessions.clear();  // each jthread joins; all were told to stop
  }

  Status listen() {
    Ec error;
    const auto address = net::ip::make_address(options.address, error);
    if (error)
      return fail(Code::kInvalid, Origin::kConfig, "listen address \"" + options.address + "\" is not an IP address");
    const tcp::endpoint endpoint(address, options.port);
    const auto failed = [&](const char* what) {
      const auto code = error == net::error::access_denied ? Code::kForbidden : Code::kExhausted;
      return fail(
          code, Origin::kHttp,
          std::string(what) + " " + options.address + ":" + std::to_string(options.port) + ": " + error.message());
    };
    acceptor.open(endpoint.protocol(), error);
    if (error) return failed("open a socket for");
    acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    acceptor.bind(endpoint, error);
    if (error) return failed("bind");
    acceptor.listen(net::socket_base::max_listen_connections, error);
    if (error) return failed("listen on");
    port = acceptor.local_endpoint(error).port();
    accepting = std::jthread([this] { accept(); });
    return {};
  }

  void accept() {
    while (!stopping.stop_requested()) {
      auto session = std::make_shared<Session>(options, handler);
      std::optional<Ec> result;
      std::optional<tcp::socket> peer;
      acceptor.async_accept(session->context(), [&](Ec ec, tcp::socket socket) {
        result = ec;
        if (!ec) peer.emplace(std::move(socket));
      });
      context.restart();
      context.run();
      if (stopping.stop_requested() || !result) return;
      if (*result) {
        // Out of descriptors: let running sessions end instead of spinning.
        std::unique_lock lock(mutex);
        ended.wait_for(lock, stopping.get_token(), std::chrono::milliseconds(100), [] { return false; });
        continue;
      }
      start(std::move(session), std::move(*peer));
    }
  }

  struct Running {
    std::atomic<bool> over{false};
    std::jthread thread;
  };

  void start(std::shared_ptr<Session> session, tcp::socket socket) {
    sessions.remove_if([](const Running& running) { return running.over.load(); });
    if (sessions.size() >= options.max_connections) return;  // the socket closes here
    session->adopt(std::move(socket));
    Running& running = sessions.emplace_back();
    running.thread = std::jthread([this, &running, session = std::move(session)]() mutable {
      session->serve(stopping.get_token());
      session.reset();
      running.over.store(true);
    });
  }

  const ServerOptions options;
  const ServerHandler handler;
  std::stop_source stopping;
  net::io_context context{1};
  tcp::acceptor acceptor{context};
  std::uint16_t port = 0;
  std::mutex mutex;
  std::condition_variable_any ended;
  std::list<Running> sessions;
  std::jthread accepting;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
std::uint16_t Server::port() const { return impl_->port; }

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, ServerHandler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  if (const auto listening = impl->listen(); !listening) return std::unexpected(listening.error());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

}  // namespace paceline::http
