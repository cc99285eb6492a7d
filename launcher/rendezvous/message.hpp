// SPDX-License-Identifier: Apache-2.0
// The messages of rendezvous protocol 1 (docs/designs/contracts.md) as values, and their JSON.
// Pure.
//
// `parse_message` accepts any bytes: every field is typed and bounded, unknown fields are ignored,
// and an Error says which field was wrong.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/telemetry/stats/summary.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::rendezvous {

inline constexpr int kProtocol = 1;

enum class Verdict { kSucceeded, kFailed };

/// What began a rank's failure. Of several ranks that fail together, the least is the nearest to
/// the cause, then the earliest.
enum class Cause {
  kKilled,  // a signal that was not its own: nobody else brings that about
  kOwn,     // its own exception or exit, as far as is known
  kPeer,    // its exception says that another rank had failed before
};

/// How a rank ended, as seen by the launcher that waited for it.
struct Failure {
  int local_rank = 0;
  std::optional<int> exit_code;
  std::optional<int> signal;
  bool oom = false;
  std::string reason;  // class: Exit, Signal, OOMKilled, NotExecutable
  std::vector<std::string> last_lines;
  Cause cause = Cause::kOwn;
  std::chrono::nanoseconds ago{0};  // how long it had failed when this was told
};

struct Culprit {
  int rank = 0;
  int node_rank = 0;
  std::string pod_name;
  int attempt = 0;
  Failure failure;
};

struct Hello {
  int protocol = kProtocol;
  std::string token;
  std::string job_uid;
  Node node;  // first_rank is the server's to fill in
  int attempt = 0;
  int restarts = 0;
};
struct Refused {
  std::string reason;
};
struct Start {
  int restarts = 0;
  RankTable table;
};
struct Failed {
  int attempt = 0;
  Failure failure;
};
struct Stop {
  int attempt = 0;
};
/// The answer to Stop, at once: what has failed here was told before.
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
struct Beat {
  std::vector<telemetry::RankSummary> ranks;
};

using Message =
    std::variant<Hello, Refused, Start, Failed, Stop, Stopping, Stopped, Done, Finish, Beat>;

std::string to_json(const Message& message);
Result<Message> parse_message(std::string_view json);

}  // namespace paceline::rendezvous
