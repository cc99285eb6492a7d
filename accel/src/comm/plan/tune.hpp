// SPDX-License-Identifier: Apache-2.0
// Which way of an allreduce is quickest for which sizes: a few sizes are tried, every candidate in
// turn, and the rest is interpolated.
//
// Ownership: none. Threads: one. Failure: nothing, where a trial failed.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "comm/plan/plan.hpp"

namespace paceline::comm {

// Seconds of one allreduce of so many bytes done as `way`; the same number on all ranks, so that
// all choose the same.
using Trial = std::function<std::optional<double>(const Way& way, std::uint64_t bytes)>;

inline constexpr std::uint64_t kLargestTrial = 16UL << 20;

// Ends early rather than spend more than `budget` on it; the largest size tried then stands for all
// above. `flows`: the numbers of connections, but for all, that the quickest way is tried with.
std::optional<std::vector<Choice>> choose(const std::vector<Way>& candidates,
                                          const std::vector<std::uint32_t>& flows,
                                          std::chrono::milliseconds budget, const Trial& trial);

}  // namespace paceline::comm
