// SPDX-License-Identifier: Apache-2.0
// Runs paceline-probe as a child process, which uses the devices, and reads its report. `paceline
// doctor --live` calls it, and paceline-probe itself, whose child is the same program. If a driver
// hangs or crashes, only the child is lost. The child reports each step before it begins, so the
// step that never ended is known.
//
// Blocks until the child has ended, has been silent for `silence`, or has run for `whole`; then the
// child and its children are killed. A child that does not die is left behind, and the report says
// so. Nothing fails: a problem is told in the report.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/registration/registrations.hpp"

namespace paceline::agent {

struct ProbeCommand {
  std::string program;
  std::vector<std::string> arguments;
  /// How long one step may take. A context on a GPU without persistence mode takes seconds.
  std::chrono::milliseconds silence{30000};
  std::chrono::milliseconds whole{300000};
  std::chrono::milliseconds until_dead{2000};
};

Registrations run_probe_process(const ProbeCommand& command);

}  // namespace paceline::agent
