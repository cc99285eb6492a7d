// SPDX-License-Identifier: Apache-2.0
// A node's fabric as JSON: `paceline fabric --json` prints it and the agent serves it as
// /v1/fabric. Pure; unknown fields are absent.
#pragma once

#include <nlohmann/json.hpp>

#include "agent/probe/fabric/fabric.hpp"

namespace paceline::agent {

nlohmann::json fabric_json(const Hardware& hardware, const Fabric& fabric);

}  // namespace paceline::agent
