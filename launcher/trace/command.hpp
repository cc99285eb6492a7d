// SPDX-License-Identifier: Apache-2.0
// `paceline-launcher trace`: what `paceline trace` starts in the pod of node rank 0 (or beside a
// `paceline run`). It asks all launchers of the job, and writes what it collects to standard
// output, one JSON object a line (docs/designs/traces.md). Exit codes: 0, 1 nothing could be
// collected, 2 wrong input.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "launcher/frameworks/environment.hpp"
#include "launcher/trace/collect.hpp"

namespace paceline::traces {

/// The launchers of the job, from the environment of the container and the rank table there.
Result<Launchers> launchers_of_pod(const Result<frameworks::Environment>& environment);

int trace_command(const std::vector<std::string>& arguments,
                  const Result<frameworks::Environment>& environment);

}  // namespace paceline::traces
