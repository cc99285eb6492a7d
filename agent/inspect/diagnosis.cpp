// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <optional>
#include <utility>

#include "agent/checks/privileged_scan.hpp"
#include "agent/inspect/machine.hpp"
#include "agent/registration/probe_process.hpp"
#include "agent/view/checks_json.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {
namespace {

std::string probe_beside_this_program() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "paceline-probe").string();
}

/// The recorded configuration space; an empty snapshot if the options name none.
Result<PciSnapshot> snapshot_of(const DiagnosisOptions& options) {
  PciSnapshot snapshot(options.pci_config);
  if (!options.pci_config.empty() && !snapshot.taken()) {
    return fail(Code::kNotFound, Origin::kConfig,
                "--pci-config " + options.pci_config +
                    " is not a complete recording: run paceline-probe --pci-config " +
                    options.pci_config + " as root");
  }
  return snapshot;
}

/// The registrations that were tried, as the options ask; nullopt if they ask for none.
Result<std::optional<Registrations>> registrations_of(const DiagnosisOptions& options) {
  const auto& [root, nvml, nccl_topo] = options.machine;
  if (options.live && (!root.empty() || !nccl_topo.empty())) {
    return fail(Code::kInvalid, Origin::kConfig,
                "--live uses the devices of this machine, and " +
                    (nccl_topo.empty() ? "--root " + root : "--nccl-topo " + nccl_topo) +
                    " is another: leave one of them out, or give --registrations with that "
                    "machine's report");
  }
  if (options.live) {
    ProbeCommand command;
    command.program = options.probe.empty() ? probe_beside_this_program() : options.probe;
    command.arguments = {"--child"};
    command.arguments.insert(command.arguments.end(), options.probe_arguments.begin(),
                             options.probe_arguments.end());
    return run_probe_process(command);
  }
  if (options.registrations.empty()) return std::nullopt;
  const auto text = read_input("--registrations", options.registrations);
  if (!text) return std::unexpected(text.error());
  auto report = read_registrations(*text);
  if (!report) {
    report.error().message =
        "--registrations " + options.registrations + ": " + report.error().message;
    return std::unexpected(report.error());
  }
  return std::move(*report);
}

}  // namespace

Result<Diagnosis> diagnose(const DiagnosisOptions& options) {
  auto registrations = registrations_of(options);
  if (!registrations) return std::unexpected(registrations.error());
  const auto snapshot = snapshot_of(options);
  if (!snapshot) return std::unexpected(snapshot.error());
  const auto machine = probe_machine(options.machine);
  if (!machine) return std::unexpected(machine.error());
  const Hardware& hardware = machine->hardware;

  Diagnosis diagnosis;
  diagnosis.ages = ages_text({options.pci_config, options.registrations},
                             {*snapshot, *registrations, {}}, SystemClock().wall());
  if (*registrations && !(*registrations)->problem.empty())
    diagnosis.warnings.push_back((*registrations)->problem);
  if (!hardware.gpu.problem.empty()) diagnosis.warnings.push_back(hardware.gpu.problem);
  Settings settings;
  if (machine->root) settings = read_settings(*machine->root, hardware, *snapshot);
  diagnosis.findings =
      run_checks(Node(hardware, std::move(settings), {}, std::move(*registrations)));
  return diagnosis;
}

std::string findings_json(const std::vector<Finding>& findings) {
  return checks_json(findings).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace paceline::agent
