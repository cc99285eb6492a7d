// SPDX-License-Identifier: Apache-2.0
// What the user's command asks for, and what Paceline starts instead. `torchrun …` and `python -m
// torch.distributed.run …` become plain `python -u script …`, once per rank; the launchers of other
// frameworks (launchers.hpp) likewise. A flag that repeats
// the job is dropped with a note. A flag that contradicts the job is an error that says what to
// write. The launcher uses this before it starts ranks, `paceline run` before it starts launchers.
//
// Pure: the caller passes in how to find an interpreter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/command/job_shape.hpp"

namespace paceline::frameworks {

/// The Python interpreter of a console script such as `torchrun`; empty if it is unknown.
using InterpreterOf = std::function<std::string(const std::string& script)>;

Result<Command> resolve_command(const std::vector<std::string>& argv, const JobShape& job,
                                const InterpreterOf& interpreter_of);

/// Reads the `#!` line of a script found on `path` (a PATH value); "" if there is none. The only
/// function here that reads files.
std::string interpreter_of_script(const std::string& script, const std::string& path);

}  // namespace paceline::frameworks
