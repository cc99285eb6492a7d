// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/table_relay.hpp"

#include <utility>
#include <vector>

#include <boost/asio/ip/address.hpp>

#include "launcher/rendezvous/secret.hpp"

namespace paceline::rendezvous {
namespace {

using boost::asio::ip::tcp;

// To connect and ask, and to take the table.
constexpr std::chrono::seconds kChildTime{60};
constexpr std::chrono::seconds kWaitingInterval{2};
// A parent that waits for the table itself is alive: its children need not ask rank 0.
constexpr std::string_view kWaiting = R"({"type":"waiting"})";
// A child that has asked in vain connects again, so allow more than one connection each.
constexpr std::size_t kMostChildren = 4 * kTableChildren;

}  // namespace

/// One try to get the table. It reports once, and not at all after `cancel`.
struct TableRelay::Fetch : std::enable_shared_from_this<Fetch> {
  Fetch(boost::asio::io_context& io, Fetched report, std::chrono::milliseconds time_limit)
      : socket(io), timer(io), done(std::move(report)), limit(time_limit) {}

  void end(Result<std::string> result) {
    const Fetched report = std::exchange(done, nullptr);
    cancel();
    if (report) report(std::move(result));
  }
  void fail_with(const std::string& why) { end(fail(Code::kUnavailable, Origin::kProtocol, why)); }
  /// The time limit begins anew, since bytes of the table came.
  void wait() {
    timer.expires_after(limit);
    timer.async_wait([self = shared_from_this()](boost::system::error_code stopped) {
      if (!stopped) self->fail_with("no answer within the time limit");
    });
  }
  void cancel() {
    done = nullptr;
    timer.cancel();
    boost::system::error_code ignored;
    socket.close(ignored);
    if (const auto open = std::exchange(connection, nullptr)) open->abort();
  }

  tcp::socket socket;
  boost::asio::steady_timer timer;
  std::shared_ptr<Connection> connection;
  Fetched done;
  const std::chrono::milliseconds limit;
};

TableRelay::TableRelay(boost::asio::io_context& io, std::string token, std::string job_uid,
                       std::chrono::milliseconds limit)
    : io_(io),
      token_(std::move(token)),
      job_uid_(std::move(job_uid)),
      limit_(limit),
      listener_(io) {}

std::uint16_t TableRelay::open(const std::string& host) {
  const auto accept = [this](tcp::socket socket) {
    if (children_.size() >= kMostChildren) return;
    const std::uint64_t id = next_++;
    auto connection = std::make_shared<Connection>(std::move(socket), kHelloLimit);
    children_[id] = {connection, -1, now_};
    connection->start({[this, id](const std::string& payload) { on_request(id, payload); },
                       [this, id](const std::string&) { children_.erase(id); }});
  };
  return listener_.open({host, 0}, 2 * kTableChildren, accept).value_or(0);
}

void TableRelay::on_request(std::uint64_t id, const std::string& payload) {
  const auto found = children_.find(id);
  if (found == children_.end()) return;
  const auto message = parse_message(payload, Sender::kMember);
  const auto* request = message ? std::get_if<TableRequest>(&*message) : nullptr;
  if (request == nullptr || !same_secret(request->token, token_) || request->job_uid != job_uid_ ||
      request->attempt < attempt_) {
    const auto connection = found->second.connection;
    children_.erase(found);
    connection->close();
    return;
  }
  found->second.attempt = request->attempt;
  if (request->attempt == attempt_) serve(found->second);
}

// The child closes when it has the table.
void TableRelay::serve(Child& child) {
  child.since = now_;
  child.connection->send(table_);
}

void TableRelay::offer(int attempt, std::string_view payload) {
  attempt_ = attempt;
  table_ = shared_frame(payload);
  std::vector<std::shared_ptr<Connection>> outdated;
  for (auto& [id, child] : children_) {
    if (child.attempt == attempt) serve(child);
    if (child.attempt >= 0 && child.attempt < attempt) outdated.push_back(child.connection);
  }
  for (const auto& connection : outdated) connection->close();
  std::erase_if(children_, [&](const auto& entry) {
    return entry.second.attempt >= 0 && entry.second.attempt < attempt;
  });
}

void TableRelay::fetch(int attempt, const net::Address& from, Fetched done) {
  if (fetch_) fetch_->cancel();
  auto fetch = std::make_shared<Fetch>(io_, std::move(done), limit_);
  fetch_ = fetch;
  fetch->wait();
  boost::system::error_code error;
  const tcp::endpoint endpoint(boost::asio::ip::make_address(from.host, error), from.port);
  const std::string request = to_json(TableRequest{token_, job_uid_, attempt});
  fetch->socket.async_connect(endpoint, [fetch, request](boost::system::error_code refused) {
    if (!fetch->done) return;
    if (refused) return fetch->fail_with(refused.message());
    fetch->connection = std::make_shared<Connection>(std::move(fetch->socket), kServerLimit);
    const std::weak_ptr<Fetch> weak = fetch;
    fetch->connection->start({[weak](std::string payload) {
                                const auto self = weak.lock();
                                if (self && payload != kWaiting) self->end(std::move(payload));
                              },
                              [weak](const std::string& why) {
                                if (const auto self = weak.lock()) self->fail_with(why);
                              },
                              [weak] {
                                if (const auto self = weak.lock()) self->wait();
                              }});
    fetch->connection->send(request);
  });
}

Result<Table> parse_table(const Result<std::string>& payload) {
  if (!payload) return std::unexpected(payload.error());
  auto message = parse_message(*payload);
  if (!message) return std::unexpected(message.error());
  auto* table = std::get_if<Table>(&*message);
  if (table == nullptr) return fail(Code::kInvalid, Origin::kProtocol, "it sent another message");
  return std::move(*table);
}

void TableRelay::tick(SteadyTime now) {
  now_ = now;
  std::erase_if(children_, [&](const auto& entry) {
    const bool waits = entry.second.attempt > attempt_;
    if (waits || now - entry.second.since <= kChildTime) return false;
    entry.second.connection->abort();
    return true;
  });
  if (now - last_heartbeat_ < kWaitingInterval) return;
  last_heartbeat_ = now;
  const SharedFrame waiting = shared_frame(kWaiting);
  std::vector<std::shared_ptr<Connection>> early;
  for (const auto& [id, child] : children_) {
    if (child.attempt > attempt_) early.push_back(child.connection);
  }
  for (const auto& connection : early) connection->send(waiting);
}

void TableRelay::close() {
  listener_.close();
  if (fetch_) fetch_->cancel();
  for (const auto& [id, child] : children_) child.connection->abort();
  children_.clear();
}

}  // namespace paceline::rendezvous
