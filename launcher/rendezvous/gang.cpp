// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/gang.hpp"

#include <algorithm>
#include <utility>

#include "launcher/rendezvous/secret.hpp"

namespace paceline::rendezvous {
namespace {

// In a larger gang a line for every pod that joins would bury the log.
constexpr int kMostJoinLines = 64;
constexpr std::size_t kLongestList = 1024;

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
  for (std::size_t place = 0; place < summaries_.size(); ++place) {
    if (place < table_.nodes.size() && contract::helps(table_.nodes[place].kind)) continue;
    all.insert(all.end(), summaries_[place].begin(), summaries_[place].end());
  }
  return all;
}

std::vector<int> Gang::missing() const {
  std::vector<int> ranks;
  for (std::size_t place = 0; phase_ == GangPhase::kRunning && place < members_.size(); ++place) {
    if (!members_[place]) ranks.push_back(static_cast<int>(place));
  }
  return ranks;
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
      conclude_failure(now);
    }
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    if (running && stopped->attempt == attempt_ && member->start_alone_at) {
      set(*member, &Member::alive, alive_, false);
      tick_alone(*member, now);
    } else if (!running && stopped->attempt == stopping_) {
      set(*member, &Member::alive, alive_, false);
      set(*member, &Member::stop_requested, stopping_members_, false);
      conclude_failure(now);
      try_start(now);
    }
  } else if (const auto* need = std::get_if<NeedTable>(&message)) {
    if (running && need->attempt == attempt_) actions_.emplace_back(SendTable{{from}});
  } else if (const auto* done = std::get_if<Done>(&message)) {
    if (running && done->attempt == attempt_) this->done(*member);
  } else if (const auto* begun = std::get_if<Started>(&message)) {
    if (running && begun->attempt == attempt_) started(*member);
  } else if (const auto* captured = std::get_if<CapturedStacks>(&message)) {
    if (captured->attempt == attempt_) take_stacks(*member, *captured);
  } else if (const auto* save = std::get_if<Save>(&message)) {
    if (running && save->attempt == attempt_) this->save(*member, *save, now);
  }
  return take();
}

bool Gang::decides(const Member& member) const {
  return contract::decides(member.hello.node.kind, has_launcher_);
}

void Gang::done(Member& member) {
  if (!decides(member)) return;
  // Whether they have trained to their end, or have ended because they saved, is known later.
  if (saving_) return saving_->done.push_back(member.hello.node.node_rank);
  set(member, &Member::done, done_, true);
  const Node& node = table_.nodes[static_cast<std::size_t>(member.hello.node.node_rank)];
  if (done_ == deciding_) {
    finish(Verdict::kSucceeded, has_launcher_ ? "the launcher of the job exited with code 0"
                                              : "all ranks exited with code 0");
  } else if (config_.rank_zero_decides && node.first_rank == 0) {
    finish(Verdict::kSucceeded, "rank 0 exited with code 0");
  }
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
  place = Member{.connection = from, .hello = hello, .last_received = now};
  node_rank_of_[from] = node_rank;
  ++gathered_;
  restarts_ = std::max(restarts_, hello.restarts);
  if (finished()) {
    send(from, finish_message_);
    return;
  }
  log_join(*place);
  if (phase_ == GangPhase::kRunning) {
    next_attempt_ = std::max(next_attempt_, hello.attempt);
    return join_alone(*place, now);
  }
  attempt_ = std::max(attempt_, hello.attempt);
  try_start(now);
}

void Gang::log_join(const Member& member) {
  const int step = std::max(1, config_.node_count / kMostJoinLines);
  if (gathered_ % step != 0 && gathered_ != config_.node_count) return;
  log("node rank " + std::to_string(member.hello.node.node_rank) + " (" +
      member.hello.node.pod_name + ") joined: " + std::to_string(gathered_) + " of " +
      std::to_string(config_.node_count));
}

void Gang::lose_member(int node_rank, const std::string& why, SteadyTime now) {
  auto& place = members_[static_cast<std::size_t>(node_rank)];
  const bool alone = fails_alone(place->hello.node.kind);
  const std::string who =
      "node rank " + std::to_string(node_rank) + " (" + place->hello.node.pod_name + ") ";
  set(*place, &Member::alive, alive_, false);
  set(*place, &Member::stop_requested, stopping_members_, false);
  set(*place, &Member::done, done_, false);
  --gathered_;
  // What it measured last is no measure of the job any more; its totals stay.
  for (auto& rank : summaries_[static_cast<std::size_t>(node_rank)]) {
    rank.window = {};
    rank.samples_per_second = 0;
    rank.live.reset();
  }
  const ConnectionId connection = place->connection;
  stacks_awaited_.erase(connection);
  node_rank_of_.erase(connection);
  place.reset();
  if (finished()) return;
  // If another rank has reported a lost peer, this member is that peer.
  if (phase_ == GangPhase::kRunning && alone && !stop_at_) {
    log(who + why + ": the others go on, and it starts again when it is back");
    return forget_in_save(connection, now);
  }
  log(who + why + (phase_ == GangPhase::kRunning ? ": the gang stops and waits for it" : ""));
  if (phase_ == GangPhase::kRunning) {
    stop_at_.reset();  // this member is the peer that they lost
    restart(now);
  }
  conclude_failure(now);
}

void Gang::finish(Verdict verdict, std::string message) {
  phase_ = verdict == Verdict::kSucceeded ? GangPhase::kSucceeded : GangPhase::kFailed;
  log("job " + std::string(to_string(phase_)) + ": " + message);
  finish_message_ = Finish{verdict, attempt_, restarts_, std::move(message),
                           verdict == Verdict::kFailed ? culprit() : std::nullopt};
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
    if (decides(*member) && !member->done)
      late += (late.empty() ? "" : ", ") + member->hello.node.pod_name;
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
    auto& member = members_[node_rank];
    if (member && phase_ == GangPhase::kRunning) tick_alone(*member, now);
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
