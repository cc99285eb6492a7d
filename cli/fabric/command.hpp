// SPDX-License-Identifier: Apache-2.0
// `paceline fabric`: the distance matrix of this machine, of a recording or of a topology file;
// records and exports. Returns the exit code: 0 shown or written, 2 for an input that cannot be
// used (said on `err` with file, field and remedy), 1 when writing failed.
#pragma once

#include <ostream>
#include <string>

#include "agent/inspect/inspect.hpp"

namespace paceline::cli {

struct FabricOptions {
  bool json = false;
  agent::MachineOptions machine;
  bool export_nccl_topo = false;
  std::string record;  // folder to write
};

int fabric_command(const FabricOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
