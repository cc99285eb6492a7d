// SPDX-License-Identifier: Apache-2.0
// `paceline explain`: what a job does, what limits it, and what would help, in sentences.
#pragma once

#include <ostream>
#include <string>

#include "cli/watch/way.hpp"

namespace paceline::cli {

struct ExplainOptions {
  LookOptions look{};
  std::string output{};  // "", "json"
};

/// Prints what is known. Pure but for the streams.
void print_explanation(const Detail& detail, bool as_json, std::size_t width, WallTime now,
                       std::ostream& out, std::ostream& err);

/// 0, or 2 if the job could not be read (printed on stderr).
int explain_command(const ExplainOptions& options);

}  // namespace paceline::cli
