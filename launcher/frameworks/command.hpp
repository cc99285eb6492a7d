// SPDX-License-Identifier: Apache-2.0
// Reads the user's command and decides what Paceline starts instead. `torchrun …` and `python -m
// torch.distributed.run …` become plain `python -u script …`, once per rank. A flag that repeats
// the job's settings is dropped with a note; a flag that contradicts them is an error that says
// what to write. The launcher calls it before it starts a process, the operator before it creates a
// pod.
//
// Pure: the search for an interpreter is a parameter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

/// The job's settings that a command must agree with.
struct JobShape {
  std::string framework = "PyTorch";  // spec.framework.type
  bool passthrough = false;           // spec.framework.launcher: Passthrough
  int replicas = 1;                   // replicas of the gang
  int processes_per_replica = 1;
};

struct Command {
  std::vector<std::string> argv;
  bool taken_over = false;         // Paceline replaced the framework's own launcher
  std::vector<std::string> notes;  // one line each: which flags the job's fields replace
};

/// The Python interpreter of a console script such as `torchrun`; empty if unknown.
using InterpreterOf = std::function<std::string(const std::string& script)>;

Result<Command> resolve_command(const std::vector<std::string>& argv, const JobShape& job,
                                const InterpreterOf& interpreter_of);

/// Reads the `#!` line of a script found on `path` (a PATH value); "" if there is none. The only
/// function here that reads files.
std::string interpreter_of_script(const std::string& script, const std::string& path);

}  // namespace paceline::frameworks
