// SPDX-License-Identifier: Apache-2.0
// Starts the process that uses the devices, and reads what it tells. A driver that hangs or crashes
// takes that process with it and nothing else: it says before each step what it begins, so the step
// that never ended is known.
//
// Blocks until the child has ended, has been silent for `silence`, or has taken `whole`; then it is
// killed, with its children. One that does not even die is left behind, and the report says so.
// Nothing fails: what went wrong is in the answer.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/registration/registrations.hpp"

namespace paceline::agent {

struct ProbeCommand {
  std::string program;
  std::vector<std::string> arguments;
  /// A context on a GPU without persistence mode takes seconds; a NIC's registration takes none.
  std::chrono::milliseconds silence{30000};
  std::chrono::milliseconds whole{300000};
  std::chrono::milliseconds until_dead{2000};
};

Registrations run_probe_process(const ProbeCommand& command);

}  // namespace paceline::agent
