// SPDX-License-Identifier: Apache-2.0
// The messages of rendezvous protocol 4 (docs/designs/contracts.md) as values, and their JSON. Gang
// and Member exchange them. Pure.
//
// `parse_message` accepts any bytes: every field is typed and bounded, unknown fields are ignored,
// and an Error names the wrong field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/telemetry/stats/summary.hpp"
#include "launcher/rendezvous/failure.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::rendezvous {

inline constexpr int kProtocol = 5;

enum class Verdict { kSucceeded, kFailed };

struct Hello {
  int protocol = kProtocol;
  std::string token;
  std::string job_uid;
  Node node;  // the server fills in first_rank
  int attempt = 0;
  int restarts = 0;
  int start_stage = 0;           // roles of lower stages start before
  std::uint16_t table_port = 0;  // where this launcher passes the rank table on; 0: it does not
};
struct Refused {
  std::string reason;
  int protocol = kProtocol;  // of the launcher that refuses
};
/// The attempt begins. The rank table comes as a message of its own, so that one encoding serves
/// all members. A member of a higher stage than `stage` keeps its table and waits for StartStage.
struct Start {
  int attempt = 0;
  int restarts = 0;
  std::string table_from;  // ip:port of the launcher to fetch the table from; "": rank 0 sends it
  int stage = 0;
  int last_stage = 0;  // members of lower stages answer with Started
  int node_rank = -1;  // the place of a spare that stands in for another; -1: the member's own
};
/// The member has no place. It waits, for as long as it takes, until it stands in for another.
struct StandBy {};
/// What the ranks of a role import, as text of paceline/_inject/standby.py. A member of the role
/// with spares tells it, and the server passes it on, with a table, to those that stand by.
struct Imports {
  std::string text;
};
/// This member ends, as it was asked to, once its ranks have stopped. Only with spares: the place
/// is free when the connection ends.
struct Leave {
  int attempt = 0;
};
/// All processes of lower stages were started: those of this stage start now.
struct StartStage {
  int attempt = 0;
  int stage = 0;
};
/// The processes of this replica were started.
struct Started {
  int attempt = 0;
};
struct Table {
  RankTable table;
};
/// Asks rank 0 for the table that could not be fetched from another member.
struct NeedTable {
  int attempt = 0;
};
/// Asks another member for the table; the first message of that connection.
struct TableRequest {
  std::string token;
  std::string job_uid;
  int attempt = 0;
};
struct Failed {
  int attempt = 0;
  Failure failure;
};
struct Stop {
  int attempt = 0;
  std::string leave{};  // why this replica ends for good, and another node takes it; "": it stays
};
/// The immediate answer to Stop: all failures of this replica were sent before.
struct Stopping {
  int attempt = 0;
};
struct Stopped {
  int attempt = 0;
};
struct Done {
  int attempt = 0;
};
struct Finish {
  Verdict verdict = Verdict::kSucceeded;
  int attempt = 0;
  int restarts = 0;
  std::string message;
  std::optional<Culprit> culprit;
};
struct Heartbeat {
  std::vector<telemetry::RankSummary> ranks;
};
/// Asks every member where its ranks are now.
struct CaptureStacks {
  int attempt = 0;
};
struct RankStack {
  int rank = 0;
  std::string text;  // at most kMostStack bytes
};
struct CapturedStacks {
  int attempt = 0;
  std::vector<RankStack> ranks;
};
inline constexpr std::size_t kMostStack = 6 * 1024;
/// Asks every member for a kernel window of its ranks, where they have such windows.
struct OpenWindow {
  int attempt = 0;
};
/// How ranks come to save at one step before a replica ends, or when one may soon be lost
/// (gang/saving.cpp). The words are in the order in which they are said.
enum class SaveWord {
  kAsk,      // member: this replica was asked to end, and its ranks can save
  kHold,     // server: which step have the ranks reached? They wait at their next one
  kReached,  // member: `step`, the newest of its ranks; -1 if none can save
  kAt,       // server: the ranks save at the first step from `step` on
  kSaved,    // member: `saved` of its `ranks` saved at `step`; no other of them is alive
  kEnded     // server: all have answered; replicas that were asked to end do so, others train on
};
struct Save {
  SaveWord word = SaveWord::kAsk;
  int attempt = 0;
  std::int64_t step = -1;
  int ranks = 0;
  int saved = 0;
  bool go_on = false;  // server: no replica ends, and ranks train on after they have saved
  int gone = 0;        // member, of such a save: ranks that have saved and then exited
};
inline constexpr std::int64_t kMostSaveStep = 1LL << 53;

/// All ranks that can save did so at this step.
struct SavedStep {
  int attempt = 0;
  std::int64_t step = 0;
};

using Message = std::variant<Hello, Refused, Start, StandBy, Imports, Leave, StartStage, Started,
                             Table, NeedTable, TableRequest, Failed, Stop, Stopping, Stopped, Done,
                             Finish, Heartbeat, CaptureStacks, CapturedStacks, OpenWindow, Save>;

std::string to_json(const Message& message);

/// Who sent a message. A member sends no rank table: a few bytes of a table describe thousands of
/// rows, which an unknown peer must not make the server allocate.
enum class Sender { kServer, kMember };
Result<Message> parse_message(std::string_view json, Sender sender = Sender::kServer);

}  // namespace paceline::rendezvous
