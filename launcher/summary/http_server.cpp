// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/http_server.hpp"

#include <chrono>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "common/net/listener.hpp"

namespace paceline::summary {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::uint32_t kMostHeader = 8 * 1024;
constexpr std::chrono::seconds kRequestTime{10};
constexpr std::chrono::milliseconds kAcceptPause{100};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::ip::tcp::socket socket, const HttpServer::Handler& handler, std::uint64_t most_body,
          std::shared_ptr<std::size_t> count)
      : stream_(std::move(socket)),
        handler_(handler),
        most_body_(most_body),
        count_(std::move(count)) {
    ++*count_;
  }
  ~Session() { --*count_; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void read() {
    parser_.emplace();
    parser_->header_limit(kMostHeader);
    parser_->body_limit(most_body_);
    stream_.expires_after(kRequestTime);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       if (error) return self->close();
                       self->answer();
                     });
  }

 private:
  void answer() {
    auto& request = parser_->get();
    const bool head = request.method() == http::verb::head;
    const std::string target(request.target());
    HttpAnswer answer = handler_(
        {head ? "GET" : std::string(request.method_string()), target.substr(0, target.find('?')),
         std::string(request[http::field::authorization]), std::move(request.body())});
    response_ = {};
    response_.version(request.version());
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.keep_alive(request.keep_alive());
    response_.content_length(answer.body.size());
    if (!head) response_.body() = std::move(answer.body);
    stream_.expires_after(kRequestTime);
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code error, std::size_t) {
                        if (error || !self->response_.keep_alive()) return self->close();
                        self->read();
                      });
  }

  void close() {
    beast::error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  beast::tcp_stream stream_;
  HttpServer::Handler handler_;
  const std::uint64_t most_body_;
  std::shared_ptr<std::size_t> count_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
};

}  // namespace

class HttpServer::Acceptor : public std::enable_shared_from_this<HttpServer::Acceptor> {
 public:
  Acceptor(asio::io_context& io, Handler handler, HttpLimits limits)
      : acceptor_(io), pause_(io), handler_(std::move(handler)), limits_(limits) {}

  Status open(const std::string& host, std::uint16_t port) {
    auto listener = net::listen_on({host, port}, static_cast<int>(limits_.connections));
    if (!listener) return std::unexpected(listener.error());
    acceptor_.assign(listener->v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                     listener->socket.release());
    accept();
    return {};
  }

  void close() {
    beast::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }

 private:
  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](beast::error_code error, asio::ip::tcp::socket socket) {
          if (error == asio::error::operation_aborted) return;
          if (error) {
            self->pause_.expires_after(kAcceptPause);
            self->pause_.async_wait([self](beast::error_code stopped) {
              if (!stopped) self->accept();
            });
            return;
          }
          if (*self->sessions_ < self->limits_.connections)
            std::make_shared<Session>(std::move(socket), self->handler_, self->limits_.body,
                                      self->sessions_)
                ->read();
          self->accept();
        });
  }

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  const Handler handler_;
  const HttpLimits limits_;
  std::shared_ptr<std::size_t> sessions_ = std::make_shared<std::size_t>(0);
};

HttpServer::HttpServer(asio::io_context& io, Handler handler, HttpLimits limits)
    : acceptor_(std::make_shared<Acceptor>(io, std::move(handler), limits)) {}
HttpServer::~HttpServer() { acceptor_->close(); }
Status HttpServer::open(const std::string& host, std::uint16_t port) {
  return acceptor_->open(host, port);
}
void HttpServer::close() { acceptor_->close(); }

}  // namespace paceline::summary
