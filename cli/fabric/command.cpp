// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric/command.hpp"

namespace paceline::cli {
namespace {

constexpr int kExitInput = 2;

int record(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  const auto files = agent::save_recording(options.machine, options.record);
  if (!files) {
    err << "paceline fabric: " << files.error().message << "\n";
    return files.error().code == Code::kInternal ? 1 : kExitInput;
  }
  out << *files
      << " files recorded; serial numbers, hardware and network addresses and UUIDs are left out "
         "or replaced.\n"
      << "Read it with: paceline fabric --root " << options.record << " --nvml " << options.record
      << "/nvml.json\n";
  return 0;
}

}  // namespace

int fabric_command(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  if (!options.record.empty()) return record(options, out, err);
  const auto fabric = agent::inspect_fabric(options.machine);
  if (!fabric) {
    err << "paceline fabric: " << fabric.error().message << "\n";
    return kExitInput;
  }
  if (options.export_nccl_topo) {
    out << fabric->nccl;
  } else if (options.json) {
    out << fabric->json;
  } else {
    if (!fabric->warning.empty()) err << "warning: " << fabric->warning << "\n";
    out << fabric->table;
  }
  return 0;
}

}  // namespace paceline::cli
