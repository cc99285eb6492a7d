// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/gang.hpp"

#include <algorithm>
#include <utility>

namespace paceline::rendezvous {
namespace {

// Compares in constant time, so that the time tells nothing about the token.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? '\1' : b[i % b.size()]);
  }
  return difference == 0;
}

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

int Gang::gathered() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                        [](const auto& member) { return member.has_value(); }));
}

std::vector<telemetry::RankSummary> Gang::ranks() const {
  std::vector<telemetry::RankSummary> all;
  for (const auto& of_node : summaries_) all.insert(all.end(), of_node.begin(), of_node.end());
  return all;
}

const Gang::Member* Gang::member_of(ConnectionId id) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
    return member && member->connection == id;
  });
  return found == members_.end() ? nullptr : &**found;
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
  member->heard = now;
  const bool running = phase_ == GangPhase::kRunning;
  if (const auto* beat = std::get_if<Beat>(&message)) {
    auto& ranks = summaries_[static_cast<std::size_t>(member->hello.node.node_rank)];
    ranks = beat->ranks;
    for (auto& rank : ranks) rank.node_rank = member->hello.node.node_rank;
  } else if (const auto* failure = std::get_if<Failed>(&message)) {
    if (running && failure->attempt == attempt_) {
      failed(*member, *failure, now);
    } else if (settling_ && failure->attempt == stopping_) {
      consider(*member, *failure, now);
    }
  } else if (const auto* stopping = std::get_if<Stopping>(&message)) {
    if (stopping->attempt == stopping_) {
      member->asked = false;
      settle();
    }
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    if (!running && stopped->attempt == stopping_) {
      member->stopped = true;
      member->asked = false;
      settle();
      try_start(now);
    }
  } else if (const auto* done = std::get_if<Done>(&message)) {
    if (running && done->attempt == attempt_) {
      member->done = true;
      const bool all = std::all_of(members_.begin(), members_.end(),
                                   [](const auto& other) { return other && other->done; });
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
  if (place && place->connection == from) return;
  if (place) {
    const ConnectionId old = place->connection;
    if (place->hello.node.incarnation < hello.node.incarnation)
      send(old, Refused{"a newer incarnation has taken over"});
    actions_.emplace_back(CloseConnection{old});
    lose(node_rank, "has connected anew", now);
  }
  place = Member{from, hello, true, false, false, now};
  restarts_ = std::max(restarts_, hello.restarts);
  if (finished()) {
    send(from, final_);
    return;
  }
  attempt_ = std::max(attempt_, hello.attempt);
  log("node rank " + std::to_string(node_rank) + " (" + hello.node.pod_name +
      ") joined: " + std::to_string(gathered()) + " of " + std::to_string(config_.node_count));
  try_start(now);
}

void Gang::consider(const Member& member, const Failed& failed, SteadyTime now) {
  const int node_rank = member.hello.node.node_rank;
  const Node& node = table_.nodes[static_cast<std::size_t>(node_rank)];
  if (failed.failure.local_rank >= node.processes) return;
  Failure failure = failed.failure;
  // In a job with one rank the lost connection was to something else.
  if (table_.world_size == 1) failure.cause = std::min(failure.cause, Cause::kOwn);
  const std::pair order{failure.cause, now - failure.ago};
  // Each member orders its own failures by one clock. Between members, the order includes the delay
  // of the messages.
  const bool others = settling_ || stop_at_;
  if (others && culprit_->node_rank != node_rank && culprit_order_ <= order) return;
  culprit_order_ = order;
  culprit_ = Culprit{node.first_rank + failure.local_rank, node_rank, node.pod_name, failed.attempt,
                     std::move(failure)};
}

void Gang::failed(const Member& member, const Failed& failed, SteadyTime now) {
  const Node& node = table_.nodes[static_cast<std::size_t>(member.hello.node.node_rank)];
  if (failed.failure.local_rank >= node.processes) return;
  consider(member, failed, now);
  if (failed.failure.reason == "NotExecutable")
    return finish(Verdict::kFailed, describe(*culprit_));
  if (culprit_->failure.cause != Cause::kPeer) return stop_for_failure(now);
  if (!stop_at_) stop_at_ = now + kOwnEnd;
}

void Gang::stop_for_failure(SteadyTime now) {
  stop_at_.reset();
  settling_ = true;
  spent_ = restarts_ >= config_.max_restarts;
  if (!spent_) ++restarts_;
  restart(now + std::chrono::duration_cast<SteadyTime::duration>(config_.backoff));
}

void Gang::settle() {
  const auto asked = [](const auto& member) { return member && member->asked; };
  if (!settling_ || std::any_of(members_.begin(), members_.end(), asked)) return;
  settling_ = false;
  const std::string what = describe(*culprit_);
  if (spent_) {
    attempt_ = stopping_;
    finish(Verdict::kFailed, what + "; all " + std::to_string(config_.max_restarts) +
                                 " restarts of failurePolicy.maxRestarts are spent");
  } else {
    log(what + ": restart " + std::to_string(restarts_) + " of " +
        std::to_string(config_.max_restarts) + ", the gang restarts in place");
  }
}

void Gang::lose(int node_rank, const std::string& why, SteadyTime now) {
  auto& place = members_[static_cast<std::size_t>(node_rank)];
  const std::string who =
      "node rank " + std::to_string(node_rank) + " (" + place->hello.node.pod_name + ") ";
  place.reset();
  if (finished()) return;
  log(who + why + (phase_ == GangPhase::kRunning ? ": the gang stops and waits for it" : ""));
  if (phase_ == GangPhase::kRunning) {
    stop_at_.reset();  // this member is the peer that they lost
    restart(now);
  }
  settle();
}

void Gang::restart(SteadyTime not_before) {
  stopping_ = attempt_;
  ++attempt_;
  phase_ = GangPhase::kRestarting;
  not_before_ = not_before;
  for (auto& member : members_) {
    if (!member || member->stopped) continue;
    member->asked = true;
    send(member->connection, Stop{stopping_});
  }
}

void Gang::try_start(SteadyTime now) {
  if (phase_ != GangPhase::kGathering && phase_ != GangPhase::kRestarting) return;
  if (settling_ || now < not_before_) return;
  std::vector<Node> nodes;
  for (const auto& member : members_) {
    if (!member || !member->stopped) return;
    nodes.push_back(member->hello.node);
  }
  table_ = make_rank_table(attempt_, config_.master_port(attempt_), std::move(nodes));
  phase_ = GangPhase::kRunning;
  log("all " + std::to_string(config_.node_count) + " replicas are here: attempt " +
      std::to_string(attempt_) + " starts with " + std::to_string(table_.world_size) + " ranks");
  first_done_.reset();
  told_ = false;
  stop_at_.reset();
  for (auto& member : members_) {
    member->stopped = false;
    member->asked = false;
    member->done = false;
    send(member->connection, Start{restarts_, table_});
  }
}

void Gang::finish(Verdict verdict, std::string message) {
  phase_ = verdict == Verdict::kSucceeded ? GangPhase::kSucceeded : GangPhase::kFailed;
  log("job " + std::string(to_string(phase_)) + ": " + message);
  final_ = Finish{verdict, attempt_, restarts_, std::move(message),
                  verdict == Verdict::kFailed ? culprit_ : std::nullopt};
  for (const auto& member : members_) {
    if (member) send(member->connection, final_);
  }
}

void Gang::name_the_late(SteadyTime now) {
  if (phase_ != GangPhase::kRunning || told_ || config_.rank_zero_decides) return;
  std::string late;
  bool any_done = false;
  for (const auto& member : members_) {
    if (!member) return;
    any_done = any_done || member->done;
    if (!member->done) late += (late.empty() ? "" : ", ") + member->hello.node.pod_name;
  }
  if (!any_done) return;
  if (!first_done_) first_done_ = now;
  if (now - *first_done_ < kLateEnd) return;
  told_ = true;
  log("still running " + std::to_string(kLateEnd.count()) + " s after the first replica ended: " +
      (late.size() > 1024 ? late.substr(0, 1024) + "…" : late) +
      "; a program may hang while it ends");
}

GangActions Gang::on_closed(ConnectionId id, SteadyTime now) {
  if (const Member* member = member_of(id)) lose(member->hello.node.node_rank, "is lost", now);
  return take();
}

GangActions Gang::on_tick(SteadyTime now) {
  for (std::size_t node_rank = 0; node_rank < members_.size(); ++node_rank) {
    const auto& member = members_[node_rank];
    if (!member || now - member->heard <= kSilence) continue;
    actions_.emplace_back(CloseConnection{member->connection});
    lose(static_cast<int>(node_rank),
         "has been silent for " + std::to_string(kSilence.count()) + " s", now);
  }
  if (now - last_beat_ >= kBeatEvery) {
    last_beat_ = now;
    for (const auto& member : members_) {
      if (member) send(member->connection, Beat{});
    }
  }
  if (stop_at_ && now >= *stop_at_) stop_for_failure(now);
  name_the_late(now);
  try_start(now);
  return take();
}

}  // namespace paceline::rendezvous
