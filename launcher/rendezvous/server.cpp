// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/server.hpp"

#include <chrono>
#include <vector>

namespace paceline::rendezvous {
namespace {

constexpr std::chrono::seconds kHandshakeTimeout{5};
// The kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 65535;
// Ticks come every 100 ms. After a longer time this process did not run, or was busy.
constexpr std::chrono::seconds kLongestTurn{1};

}  // namespace

Server::Server(boost::asio::io_context& io, const Clock& clock, GangConfig config,
               std::function<void(const std::string&)> log)
    : clock_(clock),
      gang_(config),
      log_(std::move(log)),
      listener_(io),
      most_connections_(2 * static_cast<std::size_t>(config.node_count) + 64) {}

Status Server::open(const std::string& host, std::uint16_t port) {
  const auto opened =
      listener_.open({host, port}, kBacklog,
                     [this](boost::asio::ip::tcp::socket socket) { accept(std::move(socket)); });
  if (!opened) {
    return fail(opened.error().code, Origin::kSystem,
                "PACELINE_RENDEZVOUS_LISTEN: " + opened.error().message);
  }
  return {};
}

void Server::accept(boost::asio::ip::tcp::socket socket) {
  if (connections_.size() >= most_connections_) return;
  const ConnectionId id = next_++;
  auto connection = std::make_shared<Connection>(std::move(socket), kHelloLimit);
  connections_.emplace(id, Peer{connection, clock_.steady()});
  connection->start({[this, id](const std::string& payload) { on_frame(id, payload); },
                     [this, id](const std::string&) {
                       connections_.erase(id);
                       perform(gang_.on_closed(id, clock_.steady()));
                     },
                     [this, id] { gang_.on_progress(id, clock_.steady()); }});
}

void Server::on_frame(ConnectionId id, const std::string& payload) {
  const auto peer = connections_.find(id);
  if (peer == connections_.end()) return;
  const auto message = parse_message(payload, Sender::kMember);
  if (!message || (!peer->second.greeted && !std::holds_alternative<Hello>(*message))) {
    log_("closed a connection from " + peer->second.connection->peer() + ": " +
         (message ? std::string("it did not say hello first") : message.error().message));
    drop(id, false);
    perform(gang_.on_closed(id, clock_.steady()));
    return;
  }
  perform(gang_.on_message(id, *message, clock_.steady()));
  const auto after = connections_.find(id);
  if (after != connections_.end() && !after->second.greeted && gang_.is_member(id)) {
    after->second.greeted = true;
    after->second.connection->set_limit(kMemberLimit);
  }
}

void Server::perform(const GangActions& actions) {
  for (const GangAction& action : actions) {
    if (const auto* one = std::get_if<SendTo>(&action)) {
      send(one->to, shared_frame(to_json(one->message)));
    } else if (const auto* all = std::get_if<SendToAll>(&action)) {
      const SharedFrame frame = shared_frame(to_json(all->message));
      for (const ConnectionId id : all->to) send(id, frame);
    } else if (const auto* table = std::get_if<SendTable>(&action)) {
      for (const ConnectionId id : table->to) send(id, table_frame());
    } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
      drop(close->id, true);
    } else if (const auto* line = std::get_if<LogLine>(&action)) {
      log_(line->text);
    }
  }
}

void Server::send(ConnectionId id, const SharedFrame& frame) {
  const auto peer = connections_.find(id);
  if (peer != connections_.end()) peer->second.connection->send(frame);
}

const SharedFrame& Server::table_frame() {
  if (table_version_ != gang_.table_version()) {
    table_version_ = gang_.table_version();
    table_frame_ = shared_frame(to_json(Table{gang_.table()}));
  }
  return table_frame_;
}

void Server::drop(ConnectionId id, bool flush) {
  const auto peer = connections_.find(id);
  if (peer == connections_.end()) return;
  const auto connection = peer->second.connection;
  connections_.erase(peer);
  if (flush) {
    connection->close();
  } else {
    connection->abort();
  }
}

void Server::tick() {
  const SteadyTime now = clock_.steady();
  if (last_tick_ && now - *last_tick_ > kLongestTurn) {
    gang_.on_pause(now - *last_tick_);
    for (auto& [id, peer] : connections_) peer.since += now - *last_tick_;
  }
  last_tick_ = now;
  std::vector<ConnectionId> late;
  for (const auto& [id, peer] : connections_) {
    if (!peer.greeted && now - peer.since > kHandshakeTimeout) late.push_back(id);
  }
  for (const ConnectionId id : late) drop(id, false);
  perform(gang_.on_tick(now));
}

void Server::close() {
  listener_.close();
  for (const auto& [id, peer] : connections_) peer.connection->abort();
  connections_.clear();
}

}  // namespace paceline::rendezvous
