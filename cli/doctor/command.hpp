// SPDX-License-Identifier: Apache-2.0
// `paceline doctor`: what keeps GPUDirect RDMA from working on this machine or a recording, and what to type. Changes nothing.
// Returns the exit code: 0 nothing fails (warnings are shown), 1 something fails, 2 for an input that cannot be looked at (said on `err`).
#pragma once

#include <ostream>

#include "cli/machine.hpp"

namespace paceline::cli {

struct DoctorOptions {
  bool json = false;
  MachineOptions machine;
};

int doctor_command(const DoctorOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
