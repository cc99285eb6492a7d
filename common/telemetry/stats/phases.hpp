// SPDX-License-Identifier: Apache-2.0
// The names of the sixteen phases of a step, as metrics, summaries and tables print them. Pure
// data; the index is enum paceline_phase.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "paceline/step_record.h"

namespace paceline::telemetry {

inline constexpr std::size_t kPhases = PACELINE_PHASE_COUNT;

using PhaseSeconds = std::array<double, kPhases>;

/// "data_wait", "h2d", … ; "unknown" beyond the last.
std::string_view phase_name(std::size_t phase);

/// The phase of that name, or kPhases.
std::size_t phase_of(std::string_view name);

double sum(const PhaseSeconds& seconds);

}  // namespace paceline::telemetry
