// SPDX-License-Identifier: Apache-2.0
// A device partition as an amendment of a step. Pure.
#pragma once

#include "paceline/step_record.h"
#include "sweep.hpp"

namespace paceline::device {

/// The fields that the partition fills, and no others. `truncated`: records of the window were
/// lost, so work is missing.
paceline_step_record facts_of(const Partition& partition, bool truncated);

}  // namespace paceline::device
