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
      members_(places() + static_cast<std::size_t>(config_.spares)),
      seat_of_rank_(members_.size(), -1),
      vacated_(places(), false),
      summaries_(places()) {}

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
  if (phase_ != GangPhase::kRunning) return ranks;
  for (std::size_t rank = 0; rank < seat_of_rank_.size(); ++rank) {
    if (seat_of_rank_[rank] < 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

const Gang::Member* Gang::member_of(ConnectionId id) const {
  const auto found = seat_of_.find(id);
  return found == seat_of_.end() ? nullptr : &*members_[static_cast<std::size_t>(found->second)];
}

std::vector<ConnectionId> Gang::connections() const {
  std::vector<ConnectionId> all;
  all.reserve(places());
  for (const auto& member : placed()) {
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
  if (!has_place(*member)) return take();
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
  } else if (const auto* imports = std::get_if<Imports>(&message)) {
    take_imports(*member, *imports);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    if (running && leave->attempt == attempt_) this->leave(*member, now);
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
  const auto rank = static_cast<std::size_t>(hello.node.node_rank);
  if (rank >= members_.size()) {
    return "node rank " + std::to_string(hello.node.node_rank) + " is not below the node count " +
           std::to_string(members_.size());
  }
  const int seat = seat_of_rank_[rank];
  const int incarnation =
      seat < 0 ? 0 : members_[static_cast<std::size_t>(seat)]->hello.node.incarnation;
  if (incarnation > hello.node.incarnation) {
    return "incarnation " + std::to_string(incarnation) + " of node rank " +
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
  if (seat_of_.contains(from)) return;
  int& seat_of_rank = seat_of_rank_[static_cast<std::size_t>(hello.node.node_rank)];
  if (seat_of_rank >= 0) {
    const Member& before = *members_[static_cast<std::size_t>(seat_of_rank)];
    const ConnectionId old = before.connection;
    if (before.hello.node.incarnation < hello.node.incarnation)
      send(old, Refused{"a newer incarnation has taken over"});
    actions_.emplace_back(CloseConnection{old});
    lose_member(seat_of_rank, "has connected anew", now);
  }
  seat_of_rank = seat_for(hello);
  auto& seat = members_[static_cast<std::size_t>(seat_of_rank)];
  seat = Member{
      .connection = from, .hello = hello, .own_rank = hello.node.node_rank, .last_received = now};
  seat->hello.node.node_rank = seat_of_rank;
  seat_of_[from] = seat_of_rank;
  last_join_ = now;
  restarts_ = std::max(restarts_, hello.restarts);
  if (has_place(*seat)) ++gathered_;
  if (finished()) {
    send(from, finish_message_);
    return;
  }
  const bool running = phase_ == GangPhase::kRunning;
  (running ? next_attempt_ : attempt_) =
      std::max(running ? next_attempt_ : attempt_, hello.attempt);
  if (!has_place(*seat)) {
    stand_by(*seat);
    fill_places(now);
  } else {
    log_join(*seat);
    if (running) return join_alone(*seat, now);
  }
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
  seat_of_.erase(place->connection);
  seat_of_rank_[static_cast<std::size_t>(place->own_rank)] = -1;
  if (!has_place(*place)) {
    log(place->hello.node.pod_name + ", which stood by, " + why);
    return place.reset();
  }
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
  place.reset();
  vacated_[static_cast<std::size_t>(node_rank)] = true;
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
  fill_places(now);
}

void Gang::finish(Verdict verdict, std::string message) {
  phase_ = verdict == Verdict::kSucceeded ? GangPhase::kSucceeded : GangPhase::kFailed;
  log("job " + std::string(to_string(phase_)) + ": " + message);
  finish_message_ = Finish{verdict, attempt_, restarts_, std::move(message),
                           verdict == Verdict::kFailed ? culprit() : std::nullopt};
  send_all(everyone(), finish_message_);
}

void Gang::log_stragglers(SteadyTime now) {
  if (phase_ != GangPhase::kRunning || stragglers_logged_ || config_.rank_zero_decides) return;
  if (gathered_ < config_.node_count || done_ == 0) return;
  if (!first_done_) first_done_ = now;
  if (now - *first_done_ < kStragglerWarning) return;
  std::string late;
  for (const auto& member : placed()) {
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
  for (std::size_t seat = 0; seat < members_.size(); ++seat) {
    auto& member = members_[seat];
    if (member && phase_ == GangPhase::kRunning) tick_alone(*member, now);
    if (!member || now - member->last_received <= heartbeat_timeout()) continue;
    actions_.emplace_back(CloseConnection{member->connection});
    lose_member(static_cast<int>(seat),
                "has been silent for " + std::to_string(heartbeat_timeout().count()) + " s", now);
  }
  if (now - last_heartbeat_ >= kHeartbeatInterval) {
    last_heartbeat_ = now;
    send_all(everyone(), Heartbeat{});
  }
  if (stop_at_ && now >= *stop_at_) stop_for_failure(now);
  log_stragglers(now);
  fill_places(now);
  try_start(now);
  return take();
}

}  // namespace paceline::rendezvous
