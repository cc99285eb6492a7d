// SPDX-License-Identifier: Apache-2.0
// Runs a credential plugin and reads what it printed. Blocks at most `timeout`; output is bounded.
// A plugin that cannot be started, fails, prints nothing sensible or is slow is an Error that names
// the command and its last words.
#pragma once

#include <chrono>
#include <string>

#include "common/base/error.hpp"
#include "common/kube/connect/config.hpp"

namespace paceline::kube {

Result<std::string> run_plugin(const ExecPlugin& plugin, std::chrono::milliseconds timeout);

}  // namespace paceline::kube
