// SPDX-License-Identifier: Apache-2.0
// What the user's command asks for, and what Paceline starts instead: `torchrun …` and `python -m
// torch.distributed.run …` become plain `python -u script …`, once per rank. Flags that say what
// the job says anyway are dropped with a note; a flag that contradicts the job is an error that
// says what to write. Used by the launcher before it starts anything, and by the operator before it
// creates a pod.
//
// Pure: looking for an interpreter is injected.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

/// What of the job a command must agree with.
struct JobShape {
  std::string framework = "PyTorch";  // spec.framework.type
  bool passthrough = false;           // spec.framework.launcher: Passthrough
  int replicas = 1;                   // of the gang
  int processes_per_replica = 1;
};

struct Command {
  std::vector<std::string> argv;
  bool taken_over = false;         // the framework's own launcher was replaced
  std::vector<std::string> notes;  // one line each: which flags the job's fields replace
};

/// The Python interpreter that a console script such as `torchrun` runs under; empty when it cannot
/// be told.
using InterpreterOf = std::function<std::string(const std::string& script)>;

Result<Command> resolve_command(const std::vector<std::string>& argv, const JobShape& job,
                                const InterpreterOf& interpreter_of);

/// Reads the `#!` line of a script found on `path` (a PATH value); "" when there is none. The one
/// place here that touches files.
std::string interpreter_of_script(const std::string& script, const std::string& path);

}  // namespace paceline::frameworks
