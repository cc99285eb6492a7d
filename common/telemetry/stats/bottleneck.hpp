// SPDX-License-Identifier: Apache-2.0
// The class of what limits a step, by its shares. Pure.
#pragma once

#include <string_view>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {

/// "compute", "data", "communication", "checkpoint", "host", or "unknown" where nothing was
/// measured or more than half is unattributed. A class other than compute is named where its share
/// passes its threshold (data and communication and checkpoint 20 %, host 30 %); of several, the
/// one that passes its own by most.
std::string_view bottleneck(const PhaseSeconds& shares);

}  // namespace paceline::telemetry
