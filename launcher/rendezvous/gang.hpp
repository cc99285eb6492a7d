// SPDX-License-Identifier: Apache-2.0
// Gang: the server's side of the rendezvous as a pure state machine. Members join; when all are
// there and none has a rank alive, all start together; the first failure of an attempt stops
// everybody and starts the next attempt, as long as the budget lasts; a lost member is waited for.
// Who is named for it is settled when all have told what has failed at their place: a survivor may
// end sooner than the rank that it lost. Where one says that it has lost another, that other's end
// is waited for a little before all are stopped.
//
// No sockets, no clock, no threads: events and the time come in, actions go out, in the order in
// which they are to be done. Not thread-safe. Messages that do not fit the state (an older attempt,
// a stranger) change nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::rendezvous {

inline constexpr std::chrono::seconds kBeatEvery{2};
inline constexpr std::chrono::seconds kSilence{10};
/// Ranks of one gang end together; one that still runs so much later is told of, since a program
/// may hang while it ends.
inline constexpr std::chrono::seconds kLateEnd{60};

/// A rank that fails for what another one has done is followed by that other's end: as long as a
/// big program may take to end.
inline constexpr std::chrono::seconds kOwnEnd{3};

using ConnectionId = std::uint64_t;

struct SendTo {
  ConnectionId to;
  Message message;
};
/// Closes after what was sent before is on its way.
struct CloseConnection {
  ConnectionId id;
};
struct LogLine {
  std::string text;
};
using GangAction = std::variant<SendTo, CloseConnection, LogLine>;
using GangActions = std::vector<GangAction>;

enum class GangPhase { kGathering, kRunning, kRestarting, kSucceeded, kFailed };
std::string_view to_string(GangPhase phase);

struct GangConfig {
  std::string job_uid;
  std::string token;
  int node_count = 1;
  int max_restarts = 0;
  std::chrono::nanoseconds backoff{0};
  bool rank_zero_decides = false;  // successPolicy: RankZero
  int attempt = 0;                 // seeds
  int restarts = 0;
  std::function<std::uint16_t(int attempt)> master_port;
};

class Gang {
 public:
  explicit Gang(GangConfig config);

  GangActions on_message(ConnectionId from, const Message& message, SteadyTime now);
  GangActions on_closed(ConnectionId id, SteadyTime now);
  GangActions on_tick(SteadyTime now);

  GangPhase phase() const { return phase_; }
  bool finished() const { return phase_ == GangPhase::kSucceeded || phase_ == GangPhase::kFailed; }
  int attempt() const { return attempt_; }
  int restarts() const { return restarts_; }
  int gathered() const;
  int expected() const { return config_.node_count; }
  bool is_member(ConnectionId id) const { return member_of(id) != nullptr; }
  const std::optional<Culprit>& culprit() const { return culprit_; }
  std::vector<telemetry::RankSummary> ranks() const;

 private:
  struct Member {
    ConnectionId connection;
    Hello hello;
    bool stopped = true;  // no rank of any attempt is alive there
    bool asked = false;   // to stop, and has not answered yet
    bool done = false;
    SteadyTime heard;
  };

  void hello(ConnectionId from, const Hello& hello, SteadyTime now);
  void failed(const Member& member, const Failed& failed, SteadyTime now);
  void stop_for_failure(SteadyTime now);
  void consider(const Member& member, const Failed& failed, SteadyTime now);
  void settle();
  void lose(int node_rank, const std::string& why, SteadyTime now);
  void restart(SteadyTime not_before);
  void try_start(SteadyTime now);
  void finish(Verdict verdict, std::string message);
  void name_the_late(SteadyTime now);
  std::optional<std::string> reason_to_refuse(const Hello& hello) const;

  const Member* member_of(ConnectionId id) const;
  void send(ConnectionId to, Message message) {
    actions_.emplace_back(SendTo{to, std::move(message)});
  }
  void log(std::string text) { actions_.emplace_back(LogLine{std::move(text)}); }
  GangActions take() { return std::exchange(actions_, {}); }

  GangConfig config_;
  GangPhase phase_ = GangPhase::kGathering;
  int attempt_;  // the one that runs, or the next one to start
  int restarts_;
  int stopping_ = -1;  // the attempt whose ranks are being stopped
  SteadyTime not_before_{};
  SteadyTime last_beat_{};
  std::optional<SteadyTime> first_done_;  // of this attempt; told_ once the late ones were named
  bool told_ = false;
  std::optional<Culprit> culprit_;
  std::pair<Cause, SteadyTime> culprit_order_{};
  // ranks have failed that had lost another one, whose end is waited for so long
  std::optional<SteadyTime> stop_at_;
  bool settling_ = false;  // a failure has stopped the ranks, and not all have answered
  bool spent_ = false;     // there is no restart for it
  Finish final_;
  RankTable table_;
  std::vector<std::optional<Member>> members_;  // by node rank
  std::vector<std::vector<telemetry::RankSummary>> summaries_;
  GangActions actions_;
};

}  // namespace paceline::rendezvous
