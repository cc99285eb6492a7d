// SPDX-License-Identifier: Apache-2.0
// `paceline doctor`: what keeps GPUDirect RDMA from working on this machine or a recording, and
// what to type. Changes nothing; with `live`, memory is registered with the NICs and taken back.
// Returns the exit code: 0 nothing fails (warnings are shown), 1 something fails, 2 for what cannot
// be looked at (said on `err`): an input, or GPUs whose library does not answer.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/machine.hpp"

namespace paceline::cli {

struct DoctorOptions {
  bool json = false;
  bool live = false;          // use the devices, by paceline-probe
  std::string probe;          // that program; empty: the one beside this
  std::string registrations;  // or what it reported before, maybe elsewhere
  std::string pci_config;     // what paceline-probe --pci-config recorded as root
  MachineOptions machine;
  std::vector<std::string> probe_arguments;  // for tests: other libraries
};

int doctor_command(const DoctorOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
