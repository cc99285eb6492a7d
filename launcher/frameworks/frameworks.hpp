// SPDX-License-Identifier: Apache-2.0
// One function for each framework: it sets the variables that the framework, or its kept launcher
// in passthrough mode, reads. compose_environment calls it after the part that all frameworks
// share (RANK, WORLD_SIZE, MASTER_ADDR, …). Pure. docs/reference/frameworks.md lists the variables.
#pragma once

#include "launcher/frameworks/process.hpp"
#include "launcher/frameworks/variables.hpp"

namespace paceline::frameworks {

void set_pytorch(const Process& process, Variables& variables);

}  // namespace paceline::frameworks
