// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/gang.hpp"

#include <algorithm>
#include <utility>

#include "common/net/address.hpp"
#include "launcher/rendezvous/secret.hpp"

namespace paceline::rendezvous {
namespace {

// In a larger gang a line for every pod that joins would bury the log.
constexpr int kMostJoinLines = 64;
constexpr std::size_t kLongestList = 1024;

std::string describe(const Culprit& culprit) {
  const Failure& failure = culprit.failure;
  std::string text = "rank " + std::to_string(culprit.rank) + " on " + culprit.pod_name;
  if (failure.reason == "NotExecutable")
    return text + " could not be started" +
           (failure.last_lines.empty() ? "" : ": " + failure.last_lines.back());
  if (failure.oom) return text + " ran out of memory (OOM killed)";
  text += failure.signal ? " was killed by signal " + std::to_string(*failure.signal)
                         : " exited with code " + std::to_string(failure.exit_code.value_or(-1));
  return failure.cause == Cause::kPeer
             ? text + " after it had lost a connection, and no other rank has told a cause"
             : text;
}

}  // namespace

std::string_view to_string(GangPhase phase) {
  switch (phase) {
    case GangPhase::kGathering: return "Gathering";
    case GangPhase::kRunning: return "Running";
    case GangPhase::kRestarting: return "Restarting";
    case GangPhase::kSucceeded: return "Succeeded";
    case GangPhase::kFailed: return "Failed";
  }
  return "Unknown";
}

Gang::Gang(GangConfig config)
    : config_(std::move(config)),
      attempt_(config_.attempt),
      restarts_(config_.restarts),
      members_(static_cast<std::size_t>(config_.node_count)),
      summaries_(static_cast<std::size_t>(config_.node_count)) {}

std::vector<telemetry::RankSummary> Gang::ranks() const {
  std::vector<telemetry::RankSummary> all;
  for (const auto& of_node : summaries_) all.insert(all.end(), of_node.begin(), of_node.end());
  return all;
}

const Gang::Member* Gang::member_of(ConnectionId id) const {
  const auto found = node_rank_of_.find(id);
  return found == node_rank_of_.end() ? nullptr
                                      : &*members_[static_cast<std::size_t>(found->second)];
}

std::vector<ConnectionId> Gang::connections() const {
  std::vector<ConnectionId> all;
  all.reserve(node_rank_of_.size());
  for (const auto& member : members_) {
    if (member) all.push_back(member->connection);
  }
  return all;
}

void Gang::set(Member& member, bool Member::* flag, int& tally, bool value) {
  tally += static_cast<int>(value) - static_cast<int>(member.*flag);
  member.*flag = value;
}

void Gang::on_progress(ConnectionId id, SteadyTime now) {
  if (auto* member = const_cast<Member*>(member_of(id))) member->last_received = now;
}

void Gang::on_pause(std::chrono::nanoseconds pause) {
  for (auto& member : members_) {
    if (member) member->last_received += std::chrono::duration_cast<SteadyTime::duration>(pause);
  }
}

GangActions Gang::on_message(ConnectionId from, const Message& message, SteadyTime now) {
  if (const auto* greeting = std::get_if<Hello>(&message)) {
    hello(from, *greeting, now);
    return take();
  }
  auto* member = const_cast<Member*>(member_of(from));
  if (member == nullptr) {
    actions_.emplace_back(CloseConnection{from});
    return take();
  }
  member->last_received = now;
  const bool running = phase_ == GangPhase::kRunning;
  if (const auto* beat = std::get_if<Heartbeat>(&message)) {
    auto& ranks = summaries_[static_cast<std::size_t>(member->hello.node.node_rank)];
    ranks = beat->ranks;
    for (auto& rank : ranks) rank.node_rank = member->hello.node.node_rank;
  } else if (const auto* failure = std::get_if<Failed>(&message)) {
    if (running && failure->attempt == attempt_) {
      failed(*member, *failure, now);
    } else if (collecting_failures_ && failure->attempt == stopping_) {
      weigh_failure(*member, *failure, now);
    }
  } else if (const auto* stopping = std::get_if<Stopping>(&message)) {
    if (stopping->attempt == stopping_) {
      set(*member, &Member::stop_requested, stopping_members_, false);
      conclude_failure();
    }
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    if (!running && stopped->attempt == stopping_) {
      set(*member, &Member::alive, alive_, false);
      set(*member, &Member::stop_requested, stopping_members_, false);
      conclude_failure();
      try_start(now);
    }
  } else if (const auto* need = std::get_if<NeedTable>(&message)) {
    if (running && need->attempt == attempt_) actions_.emplace_back(SendTable{{from}});
  } else if (const auto* done = std::get_if<Done>(&message)) {
    if (running && done->attempt == attempt_) {
      set(*member, &Member::done, done_, true);
      const bool all = done_ == config_.node_count;
      if (all || (config_.rank_zero_decides && member->hello.node.node_rank == 0))
        finish(Verdict::kSucceeded,
               all ? "all ranks exited with code 0" : "rank 0 exited with code 0");
    }
  }
  return take();
}

std::optional<std::string> Gang::reason_to_refuse(const Hello& hello) const {
  if (hello.protocol != kProtocol) {
    return "protocol " + std::to_string(hello.protocol) + " is not spoken here, only " +
           std::to_string(kProtocol) + ": use one Paceline version in all pods of the job";
  }
  if (!same_secret(hello.token, config_.token)) return "the token is not this job's";
  if (hello.job_uid != config_.job_uid)
    return "this is job " + config_.job_uid + ", not " + hello.job_uid;
  if (hello.node.node_rank >= config_.node_count) {
    return "node rank " + std::to_string(hello.node.node_rank) + " is not below the node count " +
           std::to_string(config_.node_count);
  }
  const auto& current = members_[static_cast<std::size_t>(hello.node.node_rank)];
  if (current && current->hello.node.incarnation > hello.node.incarnation) {
    return "incarnation " + std::to_string(current->hello.node.incarnation) + " of node rank " +
           std::to_string(hello.node.node_rank) + " has taken over";
  }
  return std::nullopt;
}

void Gang::hello(ConnectionId from, const Hello& hello, SteadyTime now) {
  if (const auto reason = reason_to_refuse(hello)) {
    log("refused " + hello.node.pod_name + " (" + hello.node.address + "): " + *reason);
    send(from, Refused{*reason});
    actions_.emplace_back(CloseConnection{from});
    return;
  }
  const int node_rank = hello.node.node_rank;
  auto& place = members_[static_cast<std::size_t>(node_rank)];
  if (node_rank_of_.contains(from)) return;
  if (place) {
    const ConnectionId old = place->connection;
    if (place->hello.node.incarnation < hello.node.incarnation)
      send(old, Refused{"a newer incarnation has taken over"});
    actions_.emplace_back(CloseConnection{old});
    lose_member(node_rank, "has connected anew", now);
  }
  place = Member{from, hello, false, false, false, now};
  node_rank_of_[from] = node_rank;
  ++gathered_;
  restarts_ = std::max(restarts_, hello.restarts);
  if (finished()) {
    send(from, finish_message_);
    return;
  }
  attempt_ = std::max(attempt_, hello.attempt);
  log_join(*place);
  try_start(now);
}

void Gang::log_join(const Member& member) {
  const int step = std::max(1, config_.node_count / kMostJoinLines);
  if (gathered_ % step != 0 && gathered_ != config_.node_count) return;
  log("node rank " + std::to_string(member.hello.node.node_rank) + " (" +
      member.hello.node.pod_name + ") joined: " + std::to_string(gathered_) + " of " +
      std::to_string(config_.node_count));
}

void Gang::weigh_failure(const Member& member, const Failed& failed, SteadyTime now) {
  const int node_rank = member.hello.node.node_rank;
  const Node& node = table_.nodes[static_cast<std::size_t>(node_rank)];
  if (failed.failure.local_rank >= node.processes) return;
  Failure failure = failed.failure;
  // In a job with one rank the lost connection was to something else.
  if (table_.world_size == 1) failure.cause = std::min(failure.cause, Cause::kOwn);
  const std::pair order{failure.cause, now - failure.ago};
  // Each member orders its own failures by one clock. Between members, the order includes the delay
  // of the messages.
  const bool others = collecting_failures_ || stop_at_;
  if (others && culprit_->node_rank != node_rank && culprit_order_ <= order) return;
  culprit_order_ = order;
  culprit_ = Culprit{node.first_rank + failure.local_rank, node_rank, node.pod_name, failed.attempt,
                     std::move(failure)};
}

void Gang::failed(const Member& member, const Failed& failed, SteadyTime now) {
  const Node& node = table_.nodes[static_cast<std::size_t>(member.hello.node.node_rank)];
  if (failed.failure.local_rank >= node.processes) return;
  weigh_failure(member, failed, now);
  if (failed.failure.reason == "NotExecutable")
    return finish(Verdict::kFailed, describe(*culprit_));
  if (culprit_->failure.cause != Cause::kPeer) return stop_for_failure(now);
  if (!stop_at_) stop_at_ = now + kPeerFailureGrace;
}

void Gang::stop_for_failure(SteadyTime now) {
  stop_at_.reset();
  collecting_failures_ = true;
  restarts_exhausted_ = restarts_ >= config_.max_restarts;
  if (!restarts_exhausted_) ++restarts_;
  restart(now + std::chrono::duration_cast<SteadyTime::duration>(config_.backoff));
}

void Gang::conclude_failure() {
  if (!collecting_failures_ || stopping_members_ > 0) return;
  collecting_failures_ = false;
  const std::string what = describe(*culprit_);
  if (restarts_exhausted_) {
    attempt_ = stopping_;
    finish(Verdict::kFailed, what + "; all " + std::to_string(config_.max_restarts) +
                                 " restarts of failurePolicy.maxRestarts are spent");
  } else {
    log(what + ": restart " + std::to_string(restarts_) + " of " +
        std::to_string(config_.max_restarts) + ", the gang restarts in place");
  }
}

void Gang::lose_member(int node_rank, const std::string& why, SteadyTime now) {
  auto& place = members_[static_cast<std::size_t>(node_rank)];
  const std::string who =
      "node rank " + std::to_string(node_rank) + " (" + place->hello.node.pod_name + ") ";
  set(*place, &Member::alive, alive_, false);
  set(*place, &Member::stop_requested, stopping_members_, false);
  set(*place, &Member::done, done_, false);
  --gathered_;
  node_rank_of_.erase(place->connection);
  place.reset();
  if (finished()) return;
  log(who + why + (phase_ == GangPhase::kRunning ? ": the gang stops and waits for it" : ""));
  if (phase_ == GangPhase::kRunning) {
    stop_at_.reset();  // this member is the peer that they lost
    restart(now);
  }
  conclude_failure();
}

void Gang::restart(SteadyTime not_before) {
  stopping_ = attempt_;
  ++attempt_;
  phase_ = GangPhase::kRestarting;
  not_before_ = not_before;
  std::vector<ConnectionId> to;
  for (auto& member : members_) {
    if (!member || !member->alive) continue;
    set(*member, &Member::stop_requested, stopping_members_, true);
    to.push_back(member->connection);
  }
  send_all(std::move(to), Stop{stopping_});
}

void Gang::try_start(SteadyTime now) {
  if (phase_ != GangPhase::kGathering && phase_ != GangPhase::kRestarting) return;
  if (collecting_failures_ || now < not_before_) return;
  if (gathered_ < config_.node_count || alive_ > 0) return;
  std::vector<Node> nodes;
  nodes.reserve(members_.size());
  for (const auto& member : members_) nodes.push_back(member->hello.node);
  table_ = make_rank_table(attempt_, config_.master_port(attempt_), std::move(nodes));
  if (config_.port_base) table_.port_base = config_.port_base(processes_in(table_));
  phase_ = GangPhase::kRunning;
  log("all " + std::to_string(config_.node_count) + " replicas are here: attempt " +
      std::to_string(attempt_) + " starts with " + std::to_string(table_.world_size) + " ranks");
  first_done_.reset();
  stragglers_logged_ = false;
  stop_at_.reset();
  std::vector<ConnectionId> direct;
  for (auto& member : members_) {
    set(*member, &Member::alive, alive_, true);
    set(*member, &Member::stop_requested, stopping_members_, false);
    set(*member, &Member::done, done_, false);
    std::string source = table_source(member->hello.node.node_rank);
    if (source.empty()) {
      direct.push_back(member->connection);
    } else {
      send(member->connection, Start{attempt_, restarts_, std::move(source)});
    }
  }
  send_all(direct, Start{attempt_, restarts_, ""});
  actions_.emplace_back(SendTable{std::move(direct)});
}

/// Where the member fetches the rank table; empty: this launcher sends it.
std::string Gang::table_source(int node_rank) const {
  const int parent = table_parent(node_rank, config_.node_count);
  if (parent == 0) return "";
  const Hello& hello = members_[static_cast<std::size_t>(parent)]->hello;
  if (hello.table_port == 0) return "";
  return net::to_string({hello.node.address, hello.table_port});
}

void Gang::finish(Verdict verdict, std::string message) {
  phase_ = verdict == Verdict::kSucceeded ? GangPhase::kSucceeded : GangPhase::kFailed;
  log("job " + std::string(to_string(phase_)) + ": " + message);
  finish_message_ = Finish{verdict, attempt_, restarts_, std::move(message),
                           verdict == Verdict::kFailed ? culprit_ : std::nullopt};
  send_all(connections(), finish_message_);
}

void Gang::log_stragglers(SteadyTime now) {
  if (phase_ != GangPhase::kRunning || stragglers_logged_ || config_.rank_zero_decides) return;
  if (gathered_ < config_.node_count || done_ == 0) return;
  if (!first_done_) first_done_ = now;
  if (now - *first_done_ < kStragglerWarning) return;
  std::string late;
  for (const auto& member : members_) {
    if (late.size() > kLongestList) break;
    if (!member->done) late += (late.empty() ? "" : ", ") + member->hello.node.pod_name;
  }
  stragglers_logged_ = true;
  log("still running " + std::to_string(kStragglerWarning.count()) +
      " s after the first replica ended: " +
      (late.size() > kLongestList ? late.substr(0, kLongestList) + "…" : late) +
      "; a program may hang while it ends");
}

GangActions Gang::on_closed(ConnectionId id, SteadyTime now) {
  if (const Member* member = member_of(id))
    lose_member(member->hello.node.node_rank, "is lost", now);
  return take();
}

GangActions Gang::on_tick(SteadyTime now) {
  for (std::size_t node_rank = 0; node_rank < members_.size(); ++node_rank) {
    const auto& member = members_[node_rank];
    if (!member || now - member->last_received <= kHeartbeatTimeout) continue;
    actions_.emplace_back(CloseConnection{member->connection});
    lose_member(static_cast<int>(node_rank),
                "has been silent for " + std::to_string(kHeartbeatTimeout.count()) + " s", now);
  }
  if (now - last_heartbeat_ >= kHeartbeatInterval) {
    last_heartbeat_ = now;
    send_all(connections(), Heartbeat{});
  }
  if (stop_at_ && now >= *stop_at_) stop_for_failure(now);
  log_stragglers(now);
  try_start(now);
  return take();
}

}  // namespace paceline::rendezvous
