// SPDX-License-Identifier: Apache-2.0
// The job of `paceline run SCRIPT ARGUMENTS…`: a PyTorch job of one replica that does not restart.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/run/job_file.hpp"

namespace paceline::cli {

struct ScriptOptions {
  std::vector<std::string> command;  // SCRIPT.py, or a program, with arguments
  int processes = 1;
  std::string numerics;  // spec.acceleration.numerics; "": its default
};

JobFile job_of_script(const ScriptOptions& options);

}  // namespace paceline::cli
