// SPDX-License-Identifier: Apache-2.0
// What a command is read against, and what is started instead of it. Values.
#pragma once

#include <string>
#include <vector>

namespace paceline::frameworks {

/// The fields of the job that a command must agree with.
struct JobShape {
  std::string framework = "PyTorch";  // spec.framework.type
  bool passthrough = false;           // spec.framework.launcher: Passthrough
  int replicas = 1;                   // replicas that train; 0: not known
  int processes_per_replica = 1;
  bool trains = true;  // whether the role's processes are ranks
  int ranks = 0;       // of all roles that train; 0: not known
};

struct Command {
  std::vector<std::string> argv;
  bool taken_over = false;         // the framework's own launcher was replaced
  std::vector<std::string> notes;  // one line for each set of flags that the job's fields replace
  // Where --local_rank=N stands in argv; -1: nowhere
  int local_rank_at = -1;
};

}  // namespace paceline::frameworks
