// SPDX-License-Identifier: Apache-2.0
// One schedule. A seed decides nodes, jobs, quota and every step. Faults happen for a while; then
// there are none until the cluster is at rest and the jobs are deleted. The same seed gives the
// same schedule.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/sim/world.hpp"

namespace paceline::sim {

/// The broken law, with seed and step in its text; nullopt if every law held.
std::optional<Broken> run_schedule(std::uint64_t seed, const Rates& rates,
                                   Defect defect = Defect::kNone);

}  // namespace paceline::sim
