// SPDX-License-Identifier: Apache-2.0
// `paceline-launcher mpi-agent`: the launch agent that mpirun calls in place of ssh, as
// `mpi-agent --hosts FILE [options of ssh] HOST COMMAND…`. It asks the launcher of that host to
// run the command, prints what the command prints, and ends as it ends. When the agent is killed,
// the connection closes and the launcher stops the command.
//
// Blocks until the command has ended. Failure: code 255, as of ssh, with a line on stderr.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::exec {

struct AgentCall {
  std::string hosts_file;
  std::string host;
  std::string command;  // for `sh -c`
};

/// Reads the arguments after the verb. Options that ssh and rsh know are skipped with their values.
Result<AgentCall> parse_agent_call(const std::vector<std::string>& arguments);

/// Returns the exit code of the command.
int run_agent(const std::vector<std::string>& arguments);

}  // namespace paceline::exec
