// SPDX-License-Identifier: Apache-2.0
// The messages of rendezvous protocol 1 (docs/designs/contracts.md) as values, and their JSON. Gang
// and Member exchange them. Pure.
//
// `parse_message` accepts any bytes: every field is typed and bounded, unknown fields are ignored,
// and an Error names the wrong field.
#pragma once

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

inline constexpr int kProtocol = 1;

enum class Verdict { kSucceeded, kFailed };

struct Hello {
  int protocol = kProtocol;
  std::string token;
  std::string job_uid;
  Node node;  // the server fills in first_rank
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
struct Beat {
  std::vector<telemetry::RankSummary> ranks;
};

using Message =
    std::variant<Hello, Refused, Start, Failed, Stop, Stopping, Stopped, Done, Finish, Beat>;

std::string to_json(const Message& message);
Result<Message> parse_message(std::string_view json);

}  // namespace paceline::rendezvous
