// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric/command.hpp"

#include <nlohmann/json.hpp>

#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/record/record.hpp"
#include "agent/view/fabric_json.hpp"

namespace paceline::cli {
namespace {

constexpr int kExitInput = 2;

int record(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  const auto root = open_root(options.machine);
  auto library = root ? open_gpus(options.machine) : std::unexpected(root.error());
  if (!library) {
    err << "paceline fabric: " << library.error().message << "\n";
    return kExitInput;
  }
  const auto files = agent::record_machine(*root, **library);
  if (const auto written = agent::write_recording(files, options.record); !written) {
    err << "paceline fabric: --record: " << written.error().message << "\n";
    return written.error().code == Code::kAlreadyExists ? kExitInput : 1;
  }
  out << files.size()
      << " files recorded; serial numbers, hardware and network addresses and UUIDs are left out "
         "or replaced.\n"
      << "Read it with: paceline fabric --root " << options.record << " --nvml " << options.record
      << "/nvml.json\n";
  return 0;
}

}  // namespace

int fabric_command(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  if (!options.record.empty()) return record(options, out, err);
  const auto machine = look_at(options.machine);
  if (!machine) {
    err << "paceline fabric: " << machine.error().message << "\n";
    return kExitInput;
  }
  const agent::Hardware& hardware = machine->hardware;
  if (options.export_nccl_topo) {
    out << agent::nccl_xml_text(hardware);
    return 0;
  }
  const auto fabric = agent::relate(hardware);
  if (options.json) {
    out << agent::fabric_json(hardware, fabric)
               .dump(2, ' ', true, nlohmann::json::error_handler_t::replace)
        << "\n";
    return 0;
  }
  if (!hardware.gpu.problem.empty()) err << "warning: " << hardware.gpu.problem << "\n";
  out << agent::matrix_text(fabric);
  if (const std::string legend = agent::legend_text(fabric); !legend.empty()) out << "\n" << legend;
  return 0;
}

}  // namespace paceline::cli
