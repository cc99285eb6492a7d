// SPDX-License-Identifier: Apache-2.0
// Processor time that ranks wanted and did not get. The kernel counts it for the training thread
// (/proc/PID/schedstat), for the container (cpu.stat of its cgroup) and for the machine
// (/proc/stat). The launcher adds it to the summaries that it sends.
//
// Reads below the given root. Stateless; thread-safe. What cannot be read counts as 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "common/telemetry/stats/summary.hpp"

namespace paceline::process {

/// `processes`: of each rank, the process whose first thread trains.
void add_lost_processor(const std::filesystem::path& root,
                        const std::map<int, std::uint32_t>& processes,
                        std::vector<telemetry::RankSummary>& ranks);

}  // namespace paceline::process
