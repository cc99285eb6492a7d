// SPDX-License-Identifier: Apache-2.0
// How a rank failed, and which rank failed first. Values.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace paceline::rendezvous {

/// What started a rank's failure. If several ranks fail together, the smallest cause is nearest to
/// the root cause; with equal causes, the earliest failure.
enum class Cause {
  kKilled,  // a signal from outside the program: no other rank can cause that
  kOwn,     // its own exception or exit, as far as known
  kPeer,    // its exception says that another rank failed before
};

/// How a rank ended, as seen by the launcher that waited for it.
struct Failure {
  int local_rank = 0;
  std::optional<int> exit_code;
  std::optional<int> signal;
  bool oom = false;
  std::string reason;  // one of Exit, Signal, OOMKilled, NotExecutable
  std::vector<std::string> last_lines;
  Cause cause = Cause::kOwn;
  std::chrono::nanoseconds ago{0};  // time between the failure and this message
};

struct Culprit {
  int rank = 0;
  int node_rank = 0;
  std::string pod_name;
  int attempt = 0;
  Failure failure;
  std::string rule{};  // the rule of spec.failurePolicy that decided; empty: none
};

}  // namespace paceline::rendezvous
