// SPDX-License-Identifier: Apache-2.0
// Checks a copied record before anything is computed from it, because a rank can store any bytes.
// Pure.
#pragma once

#include "paceline/step_record.h"

namespace paceline::telemetry {

/// True if kind, version and times are plausible. No step is longer than a week. Each phase lies
/// within the wall time. The host phases partition the wall time to within 1 % or 1 ms, which
/// allows for rounding and for a clock read between two marks.
bool is_plausible(const paceline_step_record& record);

}  // namespace paceline::telemetry
