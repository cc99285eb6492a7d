// SPDX-License-Identifier: Apache-2.0
// Options of sbatch and srun, as the command line and the #SBATCH lines have them. Pure; never
// fails.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace paceline::cli {

struct SlurmOption {
  std::string name;   // the long name without dashes; the letter, if no long name is known
  std::string value;  // empty: none
};

/// Reads options from `words[at]` on, and moves `at` to the first word that is none. Only an option
/// that is known to need a value takes the next word.
std::vector<SlurmOption> read_slurm_options(const std::vector<std::string>& words, std::size_t& at);

}  // namespace paceline::cli
