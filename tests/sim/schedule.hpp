// SPDX-License-Identifier: Apache-2.0
// One schedule: a seed decides nodes, jobs, quota and every step; faults for a while, then none
// until the cluster is at rest and the jobs are deleted. The same seed gives the same schedule.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/sim/world.hpp"

namespace paceline::sim {

/// What was broken, with the seed and the step in its text; nothing when every law held.
std::optional<Broken> run_schedule(std::uint64_t seed, const Rates& rates,
                                   Defect defect = Defect::kNone);

}  // namespace paceline::sim
