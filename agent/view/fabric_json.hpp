// SPDX-License-Identifier: Apache-2.0
// A node's fabric as JSON: what `paceline fabric --json` prints and the agent serves as /v1/fabric.
// Pure; fields that are not known are absent.
#pragma once

#include <nlohmann/json.hpp>

#include "agent/probe/fabric/fabric.hpp"

namespace paceline::agent {

nlohmann::json fabric_json(const Hardware& hardware, const Fabric& fabric);

}  // namespace paceline::agent
