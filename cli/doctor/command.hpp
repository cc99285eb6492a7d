// SPDX-License-Identifier: Apache-2.0
// `paceline doctor`: what keeps GPUDirect RDMA from working on this machine or a recording, and
// what to type. Changes nothing; with `live`, memory is registered with the NICs and taken back.
// Returns the exit code: 0 nothing fails (warnings are shown), 1 something fails, 2 for what cannot
// be looked at (said on `err`): an input, or GPUs whose library does not answer.
#pragma once

#include <ostream>

#include "agent/inspect/inspect.hpp"

namespace paceline::cli {

struct DoctorOptions : agent::DiagnosisOptions {
  bool json = false;
};

int doctor_command(const DoctorOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
