// SPDX-License-Identifier: Apache-2.0
// What `paceline fabric --json` prints. Pure; fields that are not known are absent.
#pragma once

#include <nlohmann/json.hpp>

#include "agent/probe/fabric.hpp"

namespace paceline::cli {

nlohmann::json fabric_view(const agent::Hardware& hardware, const agent::Fabric& fabric);

}  // namespace paceline::cli
