// SPDX-License-Identifier: Apache-2.0
#include "cli/fabric/command.hpp"

#include <nlohmann/json.hpp>

#include "agent/probe/fabric.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/record.hpp"
#include "agent/view/fabric.hpp"

namespace paceline::cli {
namespace {

constexpr int kExitInput = 2;

Result<agent::Hardware> read_hardware(const FabricOptions& options) {
  if (!options.nccl_topo.empty()) {
    if (!options.machine.root.empty() || !options.machine.nvml.empty()) {
      return fail(Code::kInvalid, Origin::kConfig,
                  "--nccl-topo describes a whole machine: leave out --root and --nvml");
    }
    const auto text = read_input("--nccl-topo", options.nccl_topo);
    if (!text) return std::unexpected(text.error());
    return agent::read_nccl_xml(*text, options.nccl_topo);
  }
  const auto root = open_root(options.machine);
  if (!root) return std::unexpected(root.error());
  auto library = open_gpus(options.machine);
  if (!library) return std::unexpected(library.error());
  return agent::probe_hardware(*root, **library);
}

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
      << " files recorded; serial numbers, hardware and network addresses and UUIDs are left out or replaced.\n"
      << "Read it with: paceline fabric --root " << options.record << " --nvml " << options.record << "/nvml.json\n";
  return 0;
}

}  // namespace

int fabric_command(const FabricOptions& options, std::ostream& out, std::ostream& err) {
  if (!options.record.empty()) return record(options, out, err);
  const auto hardware = read_hardware(options);
  if (!hardware) {
    err << "paceline fabric: " << hardware.error().message << "\n";
    return kExitInput;
  }
  if (options.export_nccl_topo) {
    out << agent::nccl_xml_text(*hardware);
    return 0;
  }
  const auto fabric = agent::relate(*hardware);
  if (options.json) {
    out << agent::fabric_view(*hardware, fabric).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  if (!hardware->gpu.problem.empty()) err << "warning: " << hardware->gpu.problem << "\n";
  out << agent::matrix_text(fabric);
  if (const std::string legend = agent::legend_text(fabric); !legend.empty()) out << "\n" << legend;
  return 0;
}

}  // namespace paceline::cli
