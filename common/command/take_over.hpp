// SPDX-License-Identifier: Apache-2.0
// Turns the command of a framework's launcher into the program that it would start, once per rank.
// Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/command/job_shape.hpp"
#include "common/command/launchers.hpp"

namespace paceline::frameworks {

/// `arguments`: everything after the launcher's name; `interpreter`: what Python scripts are
/// started with. Failure: the launcher does not fit the framework, or an option contradicts the
/// job.
Result<Command> take_over_launcher(const LauncherCommand& launcher,
                                   std::vector<std::string> interpreter,
                                   std::span<const std::string> arguments, const JobShape& job);

}  // namespace paceline::frameworks
