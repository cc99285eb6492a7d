// SPDX-License-Identifier: Apache-2.0
// `paceline convert`: reads a file, writes TrainingJobs and says what was not carried over.
#pragma once

#include <iosfwd>
#include <string>

namespace paceline::cli {

struct ConvertOptions {
  std::string file;
  std::string output;  // empty: standard output
};

/// The exit code: 0, 1 if a job has to be completed by hand, 2 if the file could not be converted
/// or the result not be written.
int convert_command(const ConvertOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::cli
