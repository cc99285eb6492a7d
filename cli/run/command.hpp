// SPDX-License-Identifier: Apache-2.0
// `paceline run`: reads and checks the job file, or makes a job of a script, finds launcher and
// runtime, chooses ports and a state directory, runs the job and cleans up. Returns the exit code:
// 2 for a wrong file or option (printed on stderr with file, line, field and remedy), otherwise the
// job's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run/script_job.hpp"

namespace paceline::cli {

struct RunOptions {
  std::string file;  // "": the job is the script's
  ScriptOptions script;
  std::vector<std::string> maps;
  std::string metrics_listen;
  std::string runtime_dir;
  std::string report;           // a file for the report at the end: .html or .json; "": none
  bool compare = false;         // run it with acceleration and without, in turn
  int pairs = 4;                // of such runs
  std::uint64_t last_step = 0;  // of each run; 0: the program's own
};

int run_command(const RunOptions& options);

}  // namespace paceline::cli
