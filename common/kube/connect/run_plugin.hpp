// SPDX-License-Identifier: Apache-2.0
// Runs a credential plugin and reads its output. Blocks for at most `timeout`; the output is
// bounded. If the plugin cannot be started, fails, prints nothing usable or is too slow, the Error
// names the command and its last output.
#pragma once

#include <chrono>
#include <string>

#include "common/base/error.hpp"
#include "common/kube/connect/config.hpp"

namespace paceline::kube {

Result<std::string> run_plugin(const ExecPlugin& plugin, std::chrono::milliseconds timeout);

}  // namespace paceline::kube
