// SPDX-License-Identifier: Apache-2.0
#include "testing/played_gang.hpp"

#include <deque>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/message.hpp"
#include "launcher/rendezvous/table_relay.hpp"

namespace paceline::testing {
namespace {

using boost::asio::ip::tcp;
using nlohmann::json;
using rendezvous::Connection;

// Every message but the table of a large gang is smaller.
constexpr std::size_t kSmall = 2048;
constexpr std::chrono::milliseconds kRetry{100};
constexpr std::chrono::milliseconds kTick{100};
constexpr int kWave = 100;

}  // namespace

rendezvous::Node played_node(int node_rank) {
  // Distinct for every rank, since 7919 and the prime 65521 have no common factor.
  const int place = static_cast<int>((7919LL * node_rank + 13) % 65521);
  const std::string low = std::to_string(place / 256) + "." + std::to_string(place % 256);
  std::string host = "ip-10-7-" + low + ".eu-central-1.compute.internal";
  host[host.find('.')] = '-';
  return {node_rank,      "worker", node_rank, 0, "job-worker-" + std::to_string(node_rank) + "-0",
          "127.9." + low, host,     8,         0};
}

class PlayedGang::Impl {
 public:
  explicit Impl(PlayedSettings settings) : settings_(std::move(settings)), timer_(io_) {
    for (int rank = settings_.first; rank < settings_.last; ++rank) {
      Member& member = members_.emplace_back();
      member.node_rank = rank;
      const bool passes =
          settings_.protocol > 1 && rendezvous::passes_table_on(rank, settings_.node_count);
      member.relay =
          std::make_unique<rendezvous::TableRelay>(io_, settings_.token, settings_.job_uid);
      if (passes) member.table_port = member.relay->open(played_node(rank).address);
      if (!settings_.passes_table_on) member.relay->close();
    }
  }

  PlayedResult run(std::chrono::seconds limit) {
    begin_ = std::chrono::steady_clock::now();
    tick();
    io_.run_for(limit);
    return result_;
  }

 private:
  struct Member {
    int node_rank = 0;
    std::shared_ptr<tcp::socket> connecting;
    std::shared_ptr<Connection> connection;
    std::unique_ptr<rendezvous::TableRelay> relay;
    std::uint16_t table_port = 0;
    int attempt = 0;
    bool has_table = false;
    bool ended = false;
  };

  // Pods start over seconds. If thousands connected at once, loopback would drop their packets.
  void connect_some() {
    for (int i = 0; i < kWave && connecting_ < 2 * kWave && connected_ < members_.size(); ++i)
      connect(members_[connected_++]);
  }

  void connect(Member& member) {
    ++connecting_;
    auto socket = std::make_shared<tcp::socket>(io_);
    const tcp::endpoint server(boost::asio::ip::make_address(settings_.server.host),
                               settings_.server.port);
    socket->async_connect(server, [this, &member, socket](boost::system::error_code error) {
      --connecting_;
      if (error) {
        auto pause = std::make_shared<boost::asio::steady_timer>(io_, kRetry);
        pause->async_wait([this, &member, pause](boost::system::error_code) { connect(member); });
        return;
      }
      member.connection =
          std::make_shared<Connection>(std::move(*socket), rendezvous::kServerLimit);
      member.connection->start(
          {[this, &member](const std::string& payload) { on_frame(member, payload); },
           [this, &member](const std::string&) {
             member.relay->close();
             if (!std::exchange(member.ended, true)) ++result_.lost;
           }});
      member.connection->send(hello(member));
    });
  }

  std::string hello(const Member& member) const {
    rendezvous::Hello hello;
    hello.token = settings_.token;
    hello.job_uid = settings_.job_uid;
    hello.node = played_node(member.node_rank);
    hello.table_port = member.table_port;
    hello.protocol = settings_.protocol;
    return rendezvous::to_json(hello);
  }

  void on_frame(Member& member, const std::string& payload) {
    if (payload.size() > kSmall) {
      ++result_.from_server;
      return on_table(member, payload);
    }
    const json message = json::parse(payload);
    const std::string type = message["type"];
    if (type == "start") {
      member.attempt = message.value("attempt", 0);
      const std::string from = message.value("tableFrom", "");
      if (!from.empty()) fetch(member, from);
      if (message.contains("table")) on_table(member, payload);
    } else if (type == "table") {
      ++result_.from_server;
      on_table(member, payload);
    } else if (type == "finish") {
      result_.succeeded += message["verdict"] == "Succeeded" ? 1 : 0;
      member.ended = true;
      member.connection->close();
      member.relay->close();
    }
  }

  void fetch(Member& member, const std::string& from) {
    member.relay->fetch(
        member.attempt, net::parse_address(from).value(),
        [this, &member](const Result<std::string>& payload) {
          if (payload) return on_table(member, *payload);
          member.connection->send(rendezvous::to_json(rendezvous::NeedTable{member.attempt}));
        });
  }

  void on_table(Member& member, const std::string& payload) {
    if (std::exchange(member.has_table, true)) return;
    if (member.table_port != 0) member.relay->offer(member.attempt, payload);
    if (++result_.tables < static_cast<int>(members_.size())) return;
    const auto now = std::chrono::steady_clock::now();
    result_.table_seconds = std::chrono::duration<double>(now - begin_).count();
    done_at_ = now + settings_.hold;
  }

  void tick() {
    timer_.expires_after(kTick);
    timer_.async_wait([this](boost::system::error_code error) {
      if (error) return;
      const auto now = std::chrono::steady_clock::now();
      connect_some();
      if (now - last_heartbeat_ >= rendezvous::kHeartbeatInterval) {
        last_heartbeat_ = now;
        send_all(settings_.protocol == 1 ? R"({"type":"beat","ranks":[]})"
                                         : rendezvous::to_json(rendezvous::Heartbeat{}));
      }
      bool all_ended = true;
      for (Member& member : members_) {
        member.relay->tick(now);
        all_ended = all_ended && member.ended;
      }
      if (all_ended) return;
      if (done_at_ && now >= *done_at_) {
        done_at_.reset();
        send_all(rendezvous::to_json(rendezvous::Done{members_.front().attempt}));
      }
      tick();
    });
  }

  void send_all(const std::string& payload) {
    const auto frame = rendezvous::shared_frame(payload);
    for (Member& member : members_) {
      if (member.connection && !member.ended) member.connection->send(frame);
    }
  }

  const PlayedSettings settings_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer timer_;
  std::deque<Member> members_;  // callbacks hold references
  std::size_t connected_ = 0;   // members whose first connection was begun
  int connecting_ = 0;
  PlayedResult result_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_heartbeat_;
  std::optional<std::chrono::steady_clock::time_point> done_at_;
};

PlayedGang::PlayedGang(PlayedSettings settings)
    : impl_(std::make_unique<Impl>(std::move(settings))) {}
PlayedGang::~PlayedGang() = default;
PlayedResult PlayedGang::run(std::chrono::seconds limit) { return impl_->run(limit); }

}  // namespace paceline::testing
