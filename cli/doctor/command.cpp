// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/command.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include "agent/checks/check.hpp"
#include "agent/checks/privileged_scan.hpp"
#include "agent/probe/probe.hpp"
#include "agent/registration/probe_process.hpp"
#include "agent/view/checks_json.hpp"
#include "cli/doctor/view.hpp"

namespace paceline::cli {
namespace {

std::string probe_beside_us() {
  std::error_code error;
  const auto us = std::filesystem::read_symlink("/proc/self/exe", error);
  return (us.parent_path() / "paceline-probe").string();
}

/// The recorded configuration space; that of nothing when the options name none.
Result<agent::PciSnapshot> snapshot_of(const DoctorOptions& options) {
  agent::PciSnapshot snapshot(options.pci_config);
  if (!options.pci_config.empty() && !snapshot.taken()) {
    return fail(
        Code::kNotFound, Origin::kConfig,
        "--pci-config " + options.pci_config +
            " is no folder that paceline-probe --pci-config wrote to its end: run that as root");
  }
  return snapshot;
}

/// What was tried, as the options ask; absent when they ask for nothing.
Result<std::optional<agent::Registrations>> registrations_of(const DoctorOptions& options) {
  const auto& [root, nvml, nccl_topo] = options.machine;
  if (options.live && (!root.empty() || !nccl_topo.empty())) {
    return fail(Code::kInvalid, Origin::kConfig,
                "--live uses the devices of this machine, and " +
                    (nccl_topo.empty() ? "--root " + root : "--nccl-topo " + nccl_topo) +
                    " is another: leave one of them out, or give --registrations with that "
                    "machine's report");
  }
  if (options.live) {
    agent::ProbeCommand command;
    command.program = options.probe.empty() ? probe_beside_us() : options.probe;
    command.arguments = {"--child"};
    command.arguments.insert(command.arguments.end(), options.probe_arguments.begin(),
                             options.probe_arguments.end());
    return agent::run_probe_process(command);
  }
  if (options.registrations.empty()) return std::nullopt;
  const auto text = read_input("--registrations", options.registrations);
  if (!text) return std::unexpected(text.error());
  auto report = agent::read_registrations(*text);
  if (!report) {
    report.error().message =
        "--registrations " + options.registrations + ": " + report.error().message;
    return std::unexpected(report.error());
  }
  return std::move(*report);
}

}  // namespace

int doctor_command(const DoctorOptions& options, std::ostream& out, std::ostream& err) {
  constexpr int kExitInput = 2;
  auto registrations = registrations_of(options);
  if (!registrations) {
    err << "paceline doctor: " << registrations.error().message << "\n";
    return kExitInput;
  }
  const auto snapshot = snapshot_of(options);
  if (!snapshot) {
    err << "paceline doctor: " << snapshot.error().message << "\n";
    return kExitInput;
  }
  const agent::PrivilegedScan looked{*snapshot, *registrations, {}};
  const auto ages =
      agent::ages_text({options.pci_config, options.registrations}, looked, SystemClock().wall());
  if (!ages.empty()) err << "looked at before: " << ages << "\n";
  if (*registrations && !(*registrations)->problem.empty())
    err << "warning: " << (*registrations)->problem << "\n";
  const auto machine = look_at(options.machine);
  if (!machine) {
    err << "paceline doctor: " << machine.error().message << "\n";
    return kExitInput;
  }
  const agent::Hardware& hardware = machine->hardware;
  if (!hardware.gpu.problem.empty()) err << "warning: " << hardware.gpu.problem << "\n";
  agent::Settings settings;
  if (machine->root) settings = agent::read_settings(*machine->root, hardware, *snapshot);
  const agent::Node node(hardware, std::move(settings), {}, std::move(*registrations));
  const auto findings = agent::run_checks(node);
  if (options.json) {
    out << agent::checks_json(findings).dump(2, ' ', true, nlohmann::json::error_handler_t::replace)
        << "\n";
  } else {
    out << doctor_text(findings);
  }
  return agent::exit_code(findings);
}

}  // namespace paceline::cli
