// SPDX-License-Identifier: Apache-2.0
// What a rank used the time of an attempt for. A value; goodput.hpp folds it into the job's
// account.
#pragma once

#include <cstdint>

namespace paceline::telemetry {

/// What one rank did in its present attempt, or the mean of several ranks. Seconds.
struct AttemptUse {
  int attempt = 0;
  std::uint64_t steps = 0;
  double lead = 0;  // from the start of the ranks to the first mark
  double useful = 0;
  double checkpoint = 0;
  double evaluation = 0;
  double unexplained = 0;
  double since_checkpoint = 0;  // useful time after the last checkpoint; without one all of it
  std::uint64_t checkpoints = 0;
  std::int64_t first_user_step = -1;  // the program's own numbers; -1: it told none
  std::int64_t last_user_step = -1;
  bool operator==(const AttemptUse&) const = default;
};

}  // namespace paceline::telemetry
