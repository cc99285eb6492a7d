// SPDX-License-Identifier: Apache-2.0
// Converts the text of a file: jobs of other operators, or one sbatch script, into TrainingJobs.
// Documents of other kinds pass unchanged. Pure. Bounded as cli/yaml. Failure: an Error whose
// message begins with "FILE:LINE:".
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::cli {

struct Conversion {
  std::string text;                // the documents, with their notes as comments
  std::vector<std::string> notes;  // "FILE:LINE: field: value reason; remedy"
  int jobs = 0;
  int incomplete = 0;  // jobs that Paceline refuses until someone completes them
};

/// `name`: of the file, as notes print it.
Result<Conversion> convert(const std::string& name, const std::string& text);

}  // namespace paceline::cli
