// SPDX-License-Identifier: Apache-2.0
// What limits a step, judged by its phase shares. Pure.
#pragma once

#include <string_view>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {

/// "compute", "data", "communication", "checkpoint", "host", or "unknown" if nothing was measured
/// or more than half is unattributed. A class other than compute is named if its share passes its
/// threshold: 20 % for data, communication and checkpoint, 30 % for host. Of several, the one that
/// exceeds its threshold most is named.
std::string_view bottleneck(const PhaseSeconds& shares);

}  // namespace paceline::telemetry
