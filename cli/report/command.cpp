// SPDX-License-Identifier: Apache-2.0
#include "cli/report/command.hpp"

#include <iostream>

#include "cli/error_text.hpp"
#include "cli/watch/text.hpp"

namespace paceline::cli {

int report_command(const ReportOptions& options) {
  constexpr int kExitInput = 2;
  const auto refuse = [](const Error& error) {
    std::cerr << "paceline report: " << clean(error_text(error)) << "\n";
    return kExitInput;
  };
  if (const auto known = check_report_name(options.output); !known) return refuse(known.error());
  const SystemClock clock;
  const auto detail = look_at(options.look, clock);
  if (!detail) return refuse(detail.error());
  if (const auto written = write_report(options.output, detail->document, clock.wall()); !written)
    return refuse(written.error());
  if (!detail->gap.empty()) std::cerr << "paceline report: " << clean(detail->gap) << "\n";
  std::cout << "wrote " << options.output << "\n";
  return 0;
}

}  // namespace paceline::cli
