// SPDX-License-Identifier: Apache-2.0
// What a copied record must satisfy before anyone computes with it: a rank can store any bytes.
// Pure.
#pragma once

#include "paceline/step_record.h"

namespace paceline::telemetry {

/// True when kind, version and times are plausible: no step longer than a week, each phase within
/// the wall time, the host phases an exclusive partition of it (to 1 % or 1 ms: rounding and a
/// clock read between two marks).
bool is_plausible(const paceline_step_record& record);

}  // namespace paceline::telemetry
