// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/command.hpp"

#include "cli/doctor/view.hpp"

namespace paceline::cli {

int doctor_command(const DoctorOptions& options, std::ostream& out, std::ostream& err) {
  constexpr int kExitInput = 2;
  const auto diagnosis = agent::diagnose(options);
  if (!diagnosis) {
    err << "paceline doctor: " << diagnosis.error().message << "\n";
    return kExitInput;
  }
  if (!diagnosis->ages.empty()) err << "recorded inputs: " << diagnosis->ages << "\n";
  for (const auto& warning : diagnosis->warnings) err << "warning: " << warning << "\n";
  out << (options.json ? agent::findings_json(diagnosis->findings)
                       : doctor_text(diagnosis->findings));
  return agent::exit_code(diagnosis->findings);
}

}  // namespace paceline::cli
