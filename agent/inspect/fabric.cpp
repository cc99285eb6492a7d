// SPDX-License-Identifier: Apache-2.0
#include "agent/probe/fabric/fabric.hpp"

#include <nlohmann/json.hpp>

#include "agent/inspect/machine.hpp"
#include "agent/probe/formats/nccl_xml.hpp"
#include "agent/probe/record/record.hpp"
#include "agent/view/fabric_json.hpp"

namespace paceline::agent {

Result<FabricView> inspect_fabric(const MachineOptions& options) {
  const auto machine = probe_machine(options);
  if (!machine) return std::unexpected(machine.error());
  const Hardware& hardware = machine->hardware;
  const auto fabric = relate(hardware);
  FabricView view;
  view.table = matrix_text(fabric);
  if (const std::string legend = legend_text(fabric); !legend.empty()) view.table += "\n" + legend;
  view.json =
      fabric_json(hardware, fabric).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) +
      "\n";
  view.nccl = nccl_xml_text(hardware);
  view.warning = hardware.gpu.problem;
  return view;
}

Result<std::size_t> save_recording(const MachineOptions& machine, const std::string& folder) {
  const auto root = open_root(machine);
  if (!root) return std::unexpected(root.error());
  const auto library = open_gpus(machine);
  if (!library) return std::unexpected(library.error());
  const auto files = record_machine(*root, **library);
  if (auto written = write_recording(files, folder); !written) {
    written.error().message = "--record: " + written.error().message;
    return std::unexpected(written.error());
  }
  return files.size();
}

}  // namespace paceline::agent
