// SPDX-License-Identifier: Apache-2.0
// `paceline report`: a page, or a document, about one job.
#pragma once

#include <string>

#include "cli/report/write.hpp"
#include "cli/watch/way.hpp"

namespace paceline::cli {

struct ReportOptions {
  LookOptions look{};
  std::string output{};  // a file that ends in .html or .json
};

/// 0, or 2 if the job could not be read or the file not be written (printed on stderr).
int report_command(const ReportOptions& options);

}  // namespace paceline::cli
