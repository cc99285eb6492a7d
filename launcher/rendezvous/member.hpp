// SPDX-License-Identifier: Apache-2.0
// Member: one launcher's side of the rendezvous, as a pure state machine. Launcher feeds it. It
// connects to the server, sends Hello, starts the ranks when told and when its stage has come, and
// reports how they end. It stops them when told or when the server is lost, then connects again,
// and gives up after the startup timeout.
//
// No sockets, no processes: events and the time come in, actions go out in order. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::rendezvous {

enum class End {
  kSucceeded,
  kFailed,
  kTerminated,
  kBadContract,
  kOtherRelease,  // rank 0's launcher speaks another protocol
  kRendezvousTimeout,
  kPreflightFailed,
  kReplaceNode  // a failure rule wants this replica on another node
};
std::string_view to_string(End end);

struct Outcome {
  End end = End::kSucceeded;
  int attempt = 0;
  int restarts = 0;
  std::string message;
  std::optional<Culprit> culprit;
  std::optional<SavedStep> saved = {};  // before this replica ended
};

struct ConnectServer {};  // connect now; the caller reports on_connected or on_disconnected
struct DropServer {};     // on_disconnected is not called
struct SendMessage {
  Message message;
};
struct SendSummary {};  // send a heartbeat with the ranks' current telemetry
/// Send the failure of this replica that is nearest to the cause, if there is one, as Failed of
/// this attempt.
struct SendFailure {
  int attempt;
};
/// Capture the stacks of this replica's ranks, and send them as CapturedStacks of this attempt.
struct SendStacks {
  int attempt;
};
struct AskForWindow {};  // ask this replica's ranks for a kernel window
/// Ask this replica's ranks to wait at their next step, and send the newest step that one has
/// reached (SaveWord::kReached).
struct HoldRanks {
  int attempt;
  bool go_on = false;  // as of SaveRanks
};
/// Ask them to save at the first step from this one on. The caller reports on_saved. `go_on`: not
/// before each rank has gone on to a later step, or has exited.
struct SaveRanks {
  std::int64_t step;
  bool go_on = false;
};
/// No rank has still to save, and none waits any longer.
struct ReleaseRanks {};
/// Fetch the rank table from another launcher; the caller reports on_table or on_no_table.
struct FetchTable {
  int attempt;
  std::string from;  // ip:port
};
struct StartRanks {
  int restarts;
  RankTable table;
  int node_rank;  // of this replica in the table; a spare's is that of the replica it stands in for
};
/// This replica stands by. Its ranks would start with such a table, on one of the last node ranks,
/// and import this: be ready for that.
struct PrepareRanks {
  RankTable table;
  std::string imports;
};
/// Stop all ranks of this replica. The caller reports on_all_stopped, at once if none is alive.
struct StopRanks {
  // from when on the grace period counts: they had time to save; nullopt: from now on
  std::optional<SteadyTime> since{};
};
struct Exit {
  Outcome outcome;
};
using MemberAction = std::variant<ConnectServer, DropServer, SendMessage, SendSummary, SendFailure,
                                  SendStacks, AskForWindow, HoldRanks, SaveRanks, ReleaseRanks,
                                  FetchTable, StartRanks, PrepareRanks, StopRanks, LogLine, Exit>;
using MemberActions = std::vector<MemberAction>;

struct MemberConfig {
  Hello hello;  // the message to send, with the start values of attempt and restarts
  int children =
      // processes that this replica starts; 0: one per rank. In passthrough mode it is 1: the
      // framework's launcher
      0;
  std::chrono::nanoseconds startup_timeout = std::chrono::minutes(10);
  bool rank_zero_decides = false;  // successPolicy: RankZero
  // how long a replica that was asked to end waits until ranks have saved
  std::chrono::nanoseconds longest_save{0};
  bool has_spares = false;  // the gang has: its place is given away when the link ends
};

class Member {
 public:
  Member(MemberConfig config, SteadyTime now);

  MemberActions begin(SteadyTime now);
  MemberActions on_connected(SteadyTime now);
  MemberActions on_disconnected(const std::string& why, SteadyTime now);
  MemberActions on_message(const Message& message, SteadyTime now);
  /// Bytes of a message came from the server.
  void on_progress(SteadyTime now) { last_received_ = now; }
  /// This launcher did not run for that long, so the server was not silent.
  void on_pause(SteadyTime::duration pause) { last_received_ += pause; }
  MemberActions on_table(const RankTable& table);
  MemberActions on_no_table(int attempt, const std::string& why);
  /// A rank ended; no failure means that it exited with code 0.
  MemberActions on_rank_exit(int local_rank, const std::optional<Failure>& failure);
  MemberActions on_all_stopped(SteadyTime now);
  /// The ranks here have told what they import.
  MemberActions on_imports(std::string text);
  /// The launcher received SIGTERM or SIGINT. `can_save`: a rank here has said so.
  MemberActions on_terminate(const std::string& signal, bool can_save, SteadyTime now);
  /// Of SaveRanks: no rank here that can save has still to do so.
  MemberActions on_saved(std::int64_t step, int ranks, int saved, int gone = 0);
  MemberActions on_tick(SteadyTime now);

  bool running() const { return state_ == State::kRunning; }
  int attempt() const { return attempt_; }
  int restarts() const { return config_.hello.restarts; }

 private:
  enum class State {
    kIdle,      // no rank alive
    kRunning,   // ranks of attempt_ were started and not yet told to stop
    kStopping,  // waiting for on_all_stopped
    kEnded,
  };
  enum class Link { kNone, kConnecting, kUp };
  /// Told to start. The ranks start when the table is here and the stage has come.
  struct Starting {
    Start start;
    std::optional<RankTable> table;
  };

  /// Was asked to end, and waits until the ranks have saved.
  struct Leaving {
    std::string why;
    SteadyTime until;
  };

  void end(Outcome outcome);
  std::chrono::seconds heartbeat_timeout() const {
    return config_.has_spares ? kHeartbeatTimeoutWithSpares : kHeartbeatTimeout;
  }
  void leave(const std::string& what = "", std::optional<SavedStep> saved = {});
  void on_save(const Save& save, SteadyTime now);
  void take_table(const RankTable& table);
  void prepare(const RankTable& table);
  void start_if_due();
  void connect();
  void beat(SteadyTime now);
  void stop_ranks();
  int children() const {
    return config_.children > 0 ? config_.children : config_.hello.node.processes;
  }
  Outcome outcome(End end, std::string message) const {
    return {end, attempt_, config_.hello.restarts, std::move(message), std::nullopt};
  }
  template <typename Action>
  void act(Action&& action) {
    actions_.emplace_back(std::forward<Action>(action));
  }
  MemberActions take() { return std::exchange(actions_, {}); }

  MemberConfig config_;
  State state_ = State::kIdle;
  Link link_ = Link::kNone;
  int attempt_;
  int exited_ = 0;
  // first exit in this attempt; stragglers_logged_: the ranks that still run were logged
  std::optional<SteadyTime> first_exit_;
  bool stragglers_logged_ = false;
  bool reported_ = false;
  SteadyTime idle_since_;
  SteadyTime last_received_{};
  SteadyTime last_heartbeat_{};
  SteadyTime next_connect_{};
  std::chrono::milliseconds retry_{0};
  std::string last_trouble_ = "no connection was tried";
  std::optional<Starting> starting_;
  bool runs_rank_zero_ = false;  // of the training
  bool stands_by_ = false;       // the server has told so, and no start came since
  std::string imports_;          // for the table that comes next, while it stands by
  std::optional<Leaving> leaving_;
  std::optional<SteadyTime> saving_since_;  // in this attempt
  std::optional<Outcome> ending_;
  MemberActions actions_;
};

}  // namespace paceline::rendezvous
