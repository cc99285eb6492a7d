// SPDX-License-Identifier: Apache-2.0
// The environment of one process: the variables that its framework reads, made from the rank table,
// on top of those of the image and the user. Pure.
//
// The variables of rendezvous and ranks are always replaced. Defaults (OMP_NUM_THREADS, interfaces,
// PYTHONUNBUFFERED) are set only if the variable is unset. List variables are only prepended to.
#pragma once

#include "launcher/frameworks/process.hpp"
#include "launcher/frameworks/variables.hpp"

namespace paceline::frameworks {

ComposedEnvironment compose_environment(const Environment& base, const Process& process);

/// CPUs divided among the ranks of this replica, at least 1.
int threads_per_rank(int cpus, int processes);

}  // namespace paceline::frameworks
