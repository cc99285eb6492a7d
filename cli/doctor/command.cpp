// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/command.hpp"

#include <algorithm>

#include "agent/checks/check.hpp"
#include "agent/probe/probe.hpp"
#include "cli/doctor/view.hpp"

namespace paceline::cli {

int doctor_command(const DoctorOptions& options, std::ostream& out, std::ostream& err) {
  constexpr int kExitInput = 2;
  const auto root = open_root(options.machine);
  auto library = root ? open_gpus(options.machine) : std::unexpected(root.error());
  if (!library) {
    err << "paceline doctor: " << library.error().message << "\n";
    return kExitInput;
  }
  const auto hardware = agent::probe_hardware(*root, **library);
  const agent::Node node(hardware, agent::read_settings(*root, hardware));
  const auto findings = agent::run_checks(node);
  if (options.json) {
    out << doctor_json(findings).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    if (!hardware.gpu.problem.empty()) err << "warning: " << hardware.gpu.problem << "\n";
    out << doctor_text(findings);
  }
  return std::any_of(findings.begin(), findings.end(),
                     [](const agent::Finding& finding) { return finding.verdict == agent::Verdict::kFail; })
             ? 1
             : 0;
}

}  // namespace paceline::cli
