// SPDX-License-Identifier: Apache-2.0
// Gang: the server's side of the rendezvous, as a pure state machine. Server on node rank 0 feeds
// it. Members join; when all have joined and none has a rank alive, all start together, or stage by
// stage. The first failure of an attempt stops all ranks and starts the next attempt, while
// restarts are left. The gang waits for a lost member to come back.
//
// The job has succeeded when the roles that decide have ended (contract::decides). All others are
// then stopped. An evaluator that fails is logged, and the gang goes on.
//
// The failure of a member that fails alone (contract::fails_alone) restarts its processes only. If
// it is lost, the others go on, and it starts again when it is back. Both happen within the
// attempt, and the others keep their rank table. Members that fail together cost one restart.
//
// There may be more members than places (GangConfig::spares). Those without one stand by, and the
// place of a lost member is theirs at once (gang/spares.cpp).
//
// Rules may say otherwise (GangConfig::rules). They are asked once the culprit is known.
//
// The culprit is chosen after every member has reported its failures, because a survivor may exit
// before the rank that it lost. If a rank reports that it lost a peer, the gang waits a short time
// for that peer's own failure before it stops all ranks.
//
// A member that was asked to end may ask that all ranks save at one step before. The operator asks
// for the same when a node may soon be lost (gang/saving.cpp).
//
// Every event costs the same however large the gang is, except those that concern all members.
//
// No sockets, no clock, no threads: events and the time come in, actions go out in the order in
// which they must be done. Not thread-safe. A message that does not fit the state (an older
// attempt, a connection that is no member) changes nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.hpp"
#include "common/failure/rules.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::rendezvous {

inline constexpr std::chrono::seconds kHeartbeatInterval{2};
inline constexpr std::chrono::seconds kHeartbeatTimeout{10};
/// The same in a gang with spares, which need not wait for the lost member to come back.
inline constexpr std::chrono::seconds kHeartbeatTimeoutWithSpares{6};
/// A spare takes a place that nobody has come to when all others have been taken for this long.
inline constexpr std::chrono::seconds kSpareWait{10};
/// The ranks of a gang should end together. A rank that runs this much longer than the first is
/// named in the log, because a program may hang while it exits.
inline constexpr std::chrono::seconds kStragglerWarning{60};

/// After a rank failed because it lost a peer, wait this long for the peer's own failure: a large
/// program takes that long to exit.
inline constexpr std::chrono::seconds kPeerFailureGrace{3};

/// Members that fail alone within this time after each other have one cause (storage, a server that
/// hangs), which costs one restart.
inline constexpr std::chrono::seconds kOneCause{10};

/// A warning of a node that was not repeated for so long is over: the next one counts as another.
inline constexpr std::chrono::minutes kWarningLapses{10};

using ConnectionId = std::uint64_t;

/// The step at which all ranks can still save: none has begun the step after it. `reached` has the
/// newest step of each member's ranks, -1 if none of them can save. nullopt: none can at all.
std::optional<std::int64_t> step_to_save_at(const std::vector<std::int64_t>& reached);

struct SendTo {
  ConnectionId to;
  Message message;
};
/// One message to many members, so that it is encoded once.
struct SendToAll {
  std::vector<ConnectionId> to;
  Message message;
};
/// The message Table with `table()`. Many members ask for it, so the caller keeps its encoding.
struct SendTable {
  std::vector<ConnectionId> to;
};
/// Closes after everything sent before is written.
struct CloseConnection {
  ConnectionId id;
};
struct LogLine {
  std::string text;
};
using GangAction = std::variant<SendTo, SendToAll, SendTable, CloseConnection, LogLine>;
using GangActions = std::vector<GangAction>;

enum class GangPhase { kGathering, kRunning, kRestarting, kSucceeded, kFailed };
std::string_view to_string(GangPhase phase);

struct GangConfig {
  std::string job_uid;
  std::string token;
  int node_count = 1;  // places, which the node ranks number
  int spares = 0;      // members beyond the places
  int max_restarts = 0;
  std::chrono::nanoseconds backoff{0};
  std::vector<failure::Rule> rules;  // what follows from the failure of a rank
  bool workers_together = false;     // a worker never restarts alone
  bool rank_zero_decides = false;    // successPolicy: RankZero
  int attempt = 0;                   // start values after the launcher was restarted
  int restarts = 0;
  std::function<std::uint16_t(int attempt)> master_port;
  // The first of a range of ports on a machine that all replicas share; unset: each has its own.
  std::function<std::uint16_t(int processes)> port_base;
};

/// The failure as one sentence for people.
std::string describe(const Culprit& culprit);

class Gang {
 public:
  explicit Gang(GangConfig config);

  GangActions on_message(ConnectionId from, const Message& message, SteadyTime now);
  GangActions on_closed(ConnectionId id, SteadyTime now);
  GangActions on_tick(SteadyTime now);
  /// Bytes passed between the member and this launcher, although no whole message did.
  void on_progress(ConnectionId id, SteadyTime now);
  /// This launcher did not run for that long: it could not receive, so no member was silent.
  void on_pause(std::chrono::nanoseconds pause);

  GangPhase phase() const { return phase_; }
  bool finished() const { return phase_ == GangPhase::kSucceeded || phase_ == GangPhase::kFailed; }
  int attempt() const { return attempt_; }
  int restarts() const { return restarts_; }
  int gathered() const { return gathered_; }
  const RankTable& table() const { return table_; }
  /// Grows with every change of the table.
  int table_version() const { return table_version_; }
  int expected() const { return config_.node_count; }
  /// Members that are lost while the others go on, by the node ranks that they were started with;
  /// empty while the gang gathers.
  std::vector<int> missing() const;
  bool is_member(ConnectionId id) const { return member_of(id) != nullptr; }
  std::optional<Culprit> culprit() const {
    return blame_ ? std::optional(blame_->culprit) : std::nullopt;
  }
  /// The culprit may still be another: members report, or the peer that a rank lost may.
  bool weighs_failures() const {
    return collecting_failures_ || stop_at_ ||
           (phase_ == GangPhase::kRunning && blame_ && blame_->culprit.attempt == attempt_ &&
            blame_->culprit.failure.cause == Cause::kPeer);
  }
  std::vector<telemetry::RankSummary> ranks() const;
  /// The last one; nullopt before.
  const std::optional<SavedStep>& saved() const { return saved_; }

  /// Asks all members for the stacks of their ranks; those captured before are forgotten.
  GangActions capture_stacks();
  /// By rank, as far as members have answered.
  const std::map<int, std::string>& stacks() const { return stacks_; }
  /// All members that were asked have answered, or are gone.
  bool stacks_complete() const { return stacks_awaited_.empty(); }
  /// Asks all members for a kernel window of their ranks.
  GangActions open_window();
  /// These nodes may soon be lost: the ranks save at one step and train on, once for each warning.
  /// Call it again while a warning lasts: one that comes too early for a save is taken then.
  GangActions warn(const std::vector<std::string>& nodes, SteadyTime now);
  /// The ranks hang, and this one is to blame as far as known: the gang restarts as after a
  /// failure.
  GangActions end_hang(int rank, const std::string& text, SteadyTime now);

 private:
  struct Blame {
    Culprit culprit;
    std::pair<Cause, SteadyTime> order{};  // the lower one is nearer to the cause
  };
  struct Member {
    ConnectionId connection;
    Hello hello;                  // with the node rank of its seat
    int own_rank;                 // the node rank that it was started with
    bool alive = false;           // ranks of some attempt may be alive in that pod
    bool stop_requested = false;  // was told to stop and has not answered yet
    bool done = false;            // only of members that decide
    bool failed = false;          // its failure was logged, and the gang goes on
    // Of a member that fails alone: it lost a peer, and is stopped then unless the gang is; it was
    // told to stop, and does not start before.
    std::optional<SteadyTime> stop_alone_at{};
    std::optional<SteadyTime> start_alone_at{};
    std::optional<Blame> blame{};  // for the failure that it is to be stopped for
    int burst = 0;                 // the last one that it was a part of
    SteadyTime last_received;
  };

  /// What follows from the culprit's failure, and the failure with the rule that decided.
  struct Judged {
    failure::Action action;
    std::string what;
  };

  /// Under way, or over while the members that were asked to end do so.
  struct Saving {
    SteadyTime began;
    std::set<ConnectionId> awaited;       // whose answers are missing
    std::vector<std::int64_t> reached{};  // by those that have answered
    std::optional<std::int64_t> at{};     // the step that was agreed on
    std::int64_t step = -1;               // at which ranks have saved
    int ranks = 0;                        // that can save
    int saved = 0;                        // that have
    int gone = 0;                         // that have exited then, although they were to go on
    std::vector<std::string> warned{};    // nodes; empty: a member ends after the save
    std::vector<int> done{};              // node ranks whose processes exited with 0 meanwhile
    bool ended = false;
  };

  void save(Member& member, const Save& save, SteadyTime now);
  void begin_save(const Member& member, SteadyTime now);
  void hold_ranks(std::vector<std::string> warned, SteadyTime now);
  void go_on_saving(SteadyTime now);
  void end_save(SteadyTime now);
  void forget_in_save(ConnectionId id, SteadyTime now);
  bool ends_save(const Member& member, const Failed& failed, SteadyTime now);
  void hello(ConnectionId from, const Hello& hello, SteadyTime now);
  void failed(Member& member, const Failed& failed, SteadyTime now);
  void done(Member& member);
  bool fails_alone(contract::RoleKind kind) const;
  std::optional<failure::Decision> decision_on(const Node& node, const Failure& failure) const;
  std::optional<failure::Decision> decision_on(const Culprit& culprit) const;
  Judged judge_culprit();
  SteadyTime::duration pause_of_ignored();
  bool costs_a_restart(const Member& member, const Culprit& culprit, SteadyTime now) const;
  void fail_alone(Member& member, SteadyTime now);
  void stop_alone(Member& member, SteadyTime now);
  void join_alone(Member& member, SteadyTime now);
  void start_alone(Member& member);
  void tick_alone(Member& member, SteadyTime now);
  void stop_for_failure(SteadyTime now);
  void weigh_failure(const Member& member, const Failed& failed, SteadyTime now);
  void conclude_failure(SteadyTime now);
  void replace_node(const std::string& why, SteadyTime now);
  void lose_member(int node_rank, const std::string& why, SteadyTime now);
  void restart(SteadyTime not_before);
  void try_start(SteadyTime now);
  void begin_stages();
  void started(const Member& member);
  bool decides(const Member& member) const;
  void finish(Verdict verdict, std::string message);
  void log_stragglers(SteadyTime now);
  void log_join(const Member& member);
  void take_stacks(const Member& member, const CapturedStacks& captured);
  void set(Member& member, bool Member::* flag, int& tally, bool value);
  std::string table_source(int node_rank) const;
  std::optional<std::string> reason_to_refuse(const Hello& hello) const;
  int seat_for(const Hello& hello) const;
  void stand_by(const Member& member);
  void take_imports(const Member& member, const Imports& imports);
  void prepare(const Member& member);
  void leave(const Member& member, SteadyTime now);
  void fill_places(SteadyTime now);
  std::optional<int> nearest_spare(int place) const;
  void take_place(int seat, int place);
  bool has_place(const Member& member) const {
    return member.hello.node.node_rank < config_.node_count;
  }
  std::chrono::seconds heartbeat_timeout() const {
    return config_.spares > 0 ? kHeartbeatTimeoutWithSpares : kHeartbeatTimeout;
  }
  /// The members that have places, as far as they are here.
  std::span<std::optional<Member>> placed() { return std::span(members_).first(places()); }
  std::span<const std::optional<Member>> placed() const {
    return std::span(members_).first(places());
  }
  std::size_t places() const { return static_cast<std::size_t>(config_.node_count); }

  const Member* member_of(ConnectionId id) const;
  /// Of the members that have places.
  std::vector<ConnectionId> connections() const;
  /// Of those that stand by, too.
  std::vector<ConnectionId> everyone() const;
  void send(ConnectionId to, Message message) {
    actions_.emplace_back(SendTo{to, std::move(message)});
  }
  void send_all(std::vector<ConnectionId> to, Message message) {
    if (!to.empty()) actions_.emplace_back(SendToAll{std::move(to), std::move(message)});
  }
  void log(std::string text) { actions_.emplace_back(LogLine{std::move(text)}); }
  GangActions take() { return std::exchange(actions_, {}); }

  GangConfig config_;
  GangPhase phase_ = GangPhase::kGathering;
  int attempt_;           // the running attempt, or the next one to start
  int next_attempt_ = 0;  // no attempt after the running one has a lower number
  int restarts_;
  int stopping_ = -1;  // the attempt whose ranks are being stopped
  SteadyTime not_before_{};
  SteadyTime last_heartbeat_{};
  // when the first replica of this attempt ended; stragglers_logged_: late replicas were named
  std::optional<SteadyTime> first_done_;
  bool stragglers_logged_ = false;
  std::optional<Blame> blame_;
  // Members that failed alone one soon after the other: their number, and when the last one did.
  int burst_ = 0;
  std::optional<SteadyTime> burst_at_;
  // set while a rank has reported a lost peer: the time at which all ranks are stopped
  std::optional<SteadyTime> stop_at_;
  bool collecting_failures_ =
      false;         // a failure stopped the ranks, and some members have not answered yet
  int ignored_ = 0;  // failures that rules ignored
  Finish finish_message_;
  RankTable table_;
  int table_version_ = 0;
  // By seat. The first are the places, by node rank; on the others spares stand by.
  std::vector<std::optional<Member>> members_;
  std::unordered_map<ConnectionId, int> seat_of_;
  std::vector<int> seat_of_rank_;  // by the node rank that a member was started with; -1: not here
  std::vector<bool> vacated_;      // by place: its member was lost
  SteadyTime last_join_{};
  std::string imports_;  // of the role that has spares; "": not told yet
  // how many members decide, and the stages whose processes may run
  int deciding_ = 0;
  bool has_launcher_ = false;
  bool has_servers_ = false;
  bool has_scheduler_ = false;
  int stage_ = 0;
  int last_stage_ = 0;
  std::array<int, kMostStages + 1> unstarted_{};  // by stage: members to hear Started from
  std::vector<bool> started_;                     // by node rank
  // how many members there are, have ranks alive, were told to stop, and are done
  int gathered_ = 0;
  int alive_ = 0;
  int stopping_members_ = 0;
  int done_ = 0;
  std::vector<std::vector<telemetry::RankSummary>> summaries_;
  std::map<int, std::string> stacks_;
  std::set<ConnectionId> stacks_awaited_;
  std::optional<Saving> saving_;
  std::optional<SavedStep> saved_;
  std::map<std::string, SteadyTime> warned_;  // nodes, and when the warning was last repeated
  GangActions actions_;
};

}  // namespace paceline::rendezvous
