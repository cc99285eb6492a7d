// SPDX-License-Identifier: Apache-2.0
// Batch scripts of Slurm: the #SBATCH lines give the gang, the last line that starts something
// gives the command. Pure.
#pragma once

#include <string>

#include "cli/convert/job.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

/// A script with at least one #SBATCH line.
bool is_sbatch(const std::string& text);

/// An error if no line starts a program.
Result<NewJob> convert_sbatch(const std::string& text, Notes& notes);

}  // namespace paceline::cli
