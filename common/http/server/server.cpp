// SPDX-License-Identifier: Apache-2.0
#include "common/http/server/server.hpp"

#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/http/server/session.hpp"
#include "common/net/listener.hpp"

namespace paceline::http {
namespace {

using net::ip::tcp;
using Ec = beast::error_code;

class PlainConnections final : public ConnectionFactory {
 public:
  std::shared_ptr<ServerConnection> make(const ServerOptions& options,
                                         const ServerHandler& handler) override {
    return std::make_shared<Session<PlainLayer>>(options, handler);
  }
};

}  // namespace

struct Server::Impl {
  Impl(ServerOptions server_options, ServerHandler server_handler)
      : options(std::move(server_options)),
        handler(std::move(server_handler)),
        connections(options.connections ? options.connections
                                        : std::make_shared<PlainConnections>()) {}

  ~Impl() {
    stopping.request_stop();
    net::post(context, [this] {
      Ec ignored;
      acceptor.close(ignored);
    });
    if (accepting.joinable()) accepting.join();
    sessions.clear();  // each jthread joins; all have been asked to stop
  }

  Status listen() {
    auto listener = paceline::net::listen_on({options.address, options.port},
                                             net::socket_base::max_listen_connections);
    if (!listener) return std::unexpected(listener.error());
    port = listener->port;
    acceptor.assign(listener->v6 ? tcp::v6() : tcp::v4(), listener->socket.release());
    accepting = std::jthread([this] { accept(); });
    return {};
  }

  void accept() {
    while (!stopping.stop_requested()) {
      auto session = connections->make(options, handler);
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
        // Out of descriptors: wait for running sessions to end instead of spinning.
        std::unique_lock lock(mutex);
        ended.wait_for(lock, stopping.get_token(), std::chrono::milliseconds(100),
                       [] { return false; });
        continue;
      }
      start(std::move(session), std::move(*peer));
    }
  }

  struct Running {
    std::atomic<bool> over{false};
    std::jthread thread;
  };

  void start(std::shared_ptr<ServerConnection> session, tcp::socket socket) {
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
  const std::shared_ptr<ConnectionFactory> connections;
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
